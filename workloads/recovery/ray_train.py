"""The peer's program under Ray Train: `python -m workloads.recovery.ray_train FOLDER` trains until it is ended.

Elastic: it goes on with all replicas or with one fewer, whichever there are devices for, and looks often. It has as
many as there are replicas, so that it need not wait for one.
"""

import sys
from pathlib import Path

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from raymega.driver.cluster.ray_session import ray_session
from workloads.recovery.peer import train
from workloads.recovery.toy import REPLICAS

MOST_FAILURES = 100
LOOK_S = 1.0  # whether there are devices for more workers; by itself it looks once a minute


def main(folder: str) -> None:
    with ray_session(cpus=REPLICAS):
        TorchTrainer(
            lambda: train(Path(folder)),
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(
                num_workers=(REPLICAS - 1, REPLICAS), elastic_resize_monitor_interval_s=LOOK_S
            ),
            run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=MOST_FAILURES)),
        ).fit()


if __name__ == "__main__":
    main(sys.argv[1])
