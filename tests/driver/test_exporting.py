"""A run's parameters and its config, where other programs find them."""

from pathlib import Path

import pytest
from safetensors import safe_open

from raymega.config.load import load, to_yaml
from raymega.config.schema import Config
from raymega.driver.records.exporting import CONFIG, export_run
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import StateError
from tests.checkpoint.worlds import MODEL, SPECS, plan_of, save


def test_the_newest_checkpoint_or_one_step_is_written_with_the_config_that_trained_it(tmp_path: Path):
    run = RunDirectory(path=tmp_path / "demo")
    for step in (3, 12):
        save(run.checkpoints, step=step, plan=plan_of(tp=2))
    config = Config.model_validate({"model": MODEL.model_dump(), "data": {"seq_len": 16}})
    run.config.write_text(to_yaml(config))
    newest = export_run(run, to=str(tmp_path / "out"))
    assert load((tmp_path / "out" / CONFIG).read_text(), source="out") == config
    assert str(newest).startswith(f"step 12: {len(SPECS)} tensors, ")
    export_run(run, to=str(tmp_path / "older"), step="3")
    with safe_open(tmp_path / "older" / "model.safetensors", framework="pt") as older:
        assert older.metadata()["step"] == "3"


@pytest.mark.parametrize("to", ["file", "file/below", "/proc/nothing"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, to: str):
    run = RunDirectory(path=tmp_path / "demo")
    save(run.checkpoints, step=3, plan=plan_of(tp=2))
    run.config.write_text(to_yaml(Config.model_validate({"model": MODEL.model_dump(), "data": {"seq_len": 16}})))
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"cannot be written: .* Name another place"):
        export_run(run, to=str(tmp_path / to))
