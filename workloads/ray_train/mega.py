"""The nano workload through Ray Train's interface: what a script of Ray Train changes is the trainer.

python -m workloads.ray_train.mega STORAGE [STEPS]        losses on the console, the Result at the end
"""

import sys
from pathlib import Path

import ray.train

from raymega.ray_train import MegaTrainer


def fit(storage: Path, *, steps: int, name: str = "mega") -> ray.train.Result:
    """Train the preset nano for so many steps."""
    run_config = ray.train.RunConfig(
        name=name,
        storage_path=str(storage),
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        failure_config=ray.train.FailureConfig(max_failures=3),
    )
    return MegaTrainer("nano", run_config=run_config, training={"steps": steps}, run={"seed": 7}).fit()


if __name__ == "__main__":
    print(fit(Path(sys.argv[1]).resolve(), steps=int(sys.argv[2]) if len(sys.argv) > 2 else 50))
