"""A run through Ray Train's interface, on a real Ray: what comes back, and what another fit of the name does."""

import json
from pathlib import Path

import pytest
import ray.train

from raymega.ray_train import MegaTrainer
from tests.ray_train.test_trainer import TINY, Kept


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_fit_gives_metrics_and_a_checkpoint_and_goes_on_where_the_name_stands(tmp_path: Path):
    def trainer(steps: int) -> tuple[MegaTrainer, Kept]:
        kept = Kept()
        told = ray.train.RunConfig(
            name="fitted", storage_path=str(tmp_path), callbacks=[kept],
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
        )  # fmt: skip
        return MegaTrainer(TINY, run_config=told, training={"steps": steps}), kept

    first, told = trainer(6)
    result = first.fit()
    assert result.path == str(tmp_path / "fitted")
    assert (result.metrics["step"], len(result.metrics_dataframe), result.error) == (6, 6, None)
    assert told.steps == list(range(1, 7))
    assert len(told.checkpoints) == 2
    with result.checkpoint.as_directory() as folder:
        assert json.loads((Path(folder) / "manifest.json").read_text())["step"] == 6
    ((best, metrics),) = result.best_checkpoints
    assert (best.path, metrics["step"]) == (result.checkpoint.path, 6)
    second, told = trainer(9)
    assert second.fit().metrics["step"] == 9
    assert told.steps == [7, 8, 9], "it went on with the run of that name"
    assert not (tmp_path / "fitted" / "LOCK").exists()
