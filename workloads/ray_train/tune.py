"""Two rates of learning tried by Ray Tune, each trial a run of raymega's: what to try is a part of the config.

python -m workloads.ray_train.tune [STORAGE [STEPS]]        the table of trials at the end; by default runs/tuned, 50
"""

import sys
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback

from raymega.ray_train import MegaTrainer

RATES = (1e-3, 3e-3)
DEVICES, SPARE_CPUS = 2, 3  # of a run; beside it the trial itself, and tasks of the data pipeline
TRIALS_AT_A_TIME = 1


def drive(trial: dict[str, Any]) -> None:
    """One trial, in a run directory `lr-..` in the storage: each step's metrics go to Ray Tune as well."""
    told = ray.train.RunConfig(
        name=f"lr-{trial['lr']:g}", storage_path=trial["storage"], callbacks=[TuneReportCallback()]
    )
    training = {"steps": trial["steps"], "lr": trial["lr"]}
    mesh = {"data_parallel_size": DEVICES, "pipeline_model_parallel_size": 1}
    MegaTrainer("nano", run_config=told, training=training, parallelism=mesh, run={"seed": 7}).fit()


def fit(storage: Path, *, steps: int) -> tune.ResultGrid:
    """Try each rate for so many steps."""
    space = {"lr": tune.grid_search(list(RATES)), "storage": str(storage), "steps": steps}
    tuner = tune.Tuner(
        drive,
        param_space=space,
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=TRIALS_AT_A_TIME),
        run_config=tune.RunConfig(name="tuned", storage_path=str(storage)),
    )
    return tuner.fit()


if __name__ == "__main__":
    if not ray.is_initialized():
        ray.init(num_cpus=DEVICES + SPARE_CPUS)
    said = dict(enumerate(sys.argv))
    found = fit(Path(said.get(1, "runs/tuned")).resolve(), steps=int(said.get(2, 50)))
    print(found.get_dataframe()[["config/lr", "step", "loss"]])
    print(f"best: lr={found.get_best_result().config['lr']:g}")
