"""A run that begins with the state of another: what comes along, what may change, and what is refused."""

import json
from pathlib import Path

import pytest

from raymega.checkpoint.copying import copy_checkpoint
from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.store import open_store
from raymega.config.load import load, to_yaml
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.forking import fork_run
from raymega.driver.records.events_sink import EventsSink
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.run_status import status_of
from raymega.errors import ConfigError, RaymegaError, StateError
from tests.checkpoint.worlds import MODEL, plan_of, save
from tests.driver.written import steps

CONFIG = {
    "run": {"name": "demo", "seed": 7}, "model": MODEL.model_dump(), "data": {"seq_len": 16, "tokenizer": "byte"},
    "training": {"steps": 20, "batch_size": 16, "micro_batch_size": 4},
}  # fmt: skip


@pytest.fixture
def demo(tmp_path: Path) -> RunDirectory:
    """A run of 14 steps that keeps its checkpoints of steps 3 and 12."""
    run = RunDirectory(path=tmp_path / "demo")
    known = load_tokenizer("byte").fingerprint
    save(run.checkpoints, step=3, plan=plan_of(dp=2), tokenizer=known)
    save(run.checkpoints, step=12, plan=plan_of(tp=2, pp=2), tokenizer=known)
    run.config.write_text(to_yaml(load(json.dumps(CONFIG), source="x")))
    run.metrics.write_text(steps(*({"step": step} for step in range(1, 15))))
    return run


def test_a_fork_has_the_newest_state_and_the_steps_that_led_there(demo: RunDirectory):
    forked = fork_run(demo, name="hot", overrides=("training.lr=1e-4", "parallelism.data_parallel_size=2"))
    found = newest_complete(str(forked.run.checkpoints))
    assert found is not None
    assert (found.manifest.step, found.warnings) == (12, ())
    assert [line["step"] for line in read_lines(forked.run.metrics)] == list(range(1, 13))
    config = forked.run.read_config()
    assert (config.run.name, config.run.seed, config.training.lr) == ("hot", 7, 1e-4)
    assert f"to go on: raymega train {forked.run.config}" in str(forked)


def test_it_says_where_it_comes_from_and_what_is_other_in_it(demo: RunDirectory):
    forked = fork_run(demo, name="hot", step="3", overrides=("training.lr=1e-4",))
    status = status_of(forked.run)
    assert (status.standing, status.step, status.resume_step) == ("forked", 3, 3)
    assert "forked from run demo after step 3: training.lr " in status.reason
    assert status.reason.endswith("-> 0.0001")
    EventsSink(forked.run.events).close()
    assert [line["event"] for line in read_lines(forked.run.events)] == ["Forked"]


def test_the_other_run_is_only_read(demo: RunDirectory):
    before = {file: file.read_bytes() for file in demo.path.rglob("*") if file.is_file()}
    fork_run(demo, name="hot")
    assert {file: file.read_bytes() for file in demo.path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("name", "step", "override", "error", "says"),
    [
        ("demo", "auto", "", ConfigError, "something in .*/demo already"),
        ("hot", "5", "", StateError, "no checkpoint of step 5; there are: 3, 12"),
        ("hot", "auto", "training.batch_size=32", ConfigError, r"training\.batch_size is 32, was 16"),
        ("hot", "auto", "run.seed=8", ConfigError, r"run\.seed is 8, was 7"),
        ("hot", "auto", "data.tokenizer=shakespeare-2k", ConfigError, "data.tokenizer is of fingerprint .*, was of"),
        ("hot", "auto", "model.hidden_size=48", StateError, r"does not fit: .*run\.init_from takes the parameters"),
        ("hot", "auto", "training.larning_rate=1", ConfigError, "larning_rate"),
        ("hot", "auto", "checkpoint.path={demo}/checkpoints", ConfigError, "checkpoints of another run"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(demo: RunDirectory, name, step, override, error, says):
    overrides = tuple(filter(None, [override.format(demo=demo.path)]))
    with pytest.raises(error, match=says):
        fork_run(demo, name=name, step=step, overrides=overrides)
    assert [path.name for path in demo.path.parent.iterdir()] == ["demo"]


def test_what_breaks_off_leaves_no_run(demo: RunDirectory, monkeypatch):
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("raymega.driver.forking.copy_checkpoint", full)
    with pytest.raises(RaymegaError, match=r"hot/checkpoints/step-12 cannot be written: .*No space left"):
        fork_run(demo, name="hot")
    assert [path.name for path in demo.path.parent.iterdir()] == ["demo"]


def test_a_run_without_a_checkpoint_cannot_be_forked(tmp_path: Path):
    run = RunDirectory(path=tmp_path / "new")
    run.create()
    run.config.write_text(to_yaml(load("run: {name: new, seed: 1}", source="x")))
    with pytest.raises(StateError, match="has no checkpoint yet, which a fork could begin with"):
        fork_run(run, name="hot")


def test_a_checkpoint_that_lost_a_file_is_not_copied_as_one(demo: RunDirectory, tmp_path: Path):
    source, target = open_store(str(demo.checkpoints / "step-12")), open_store(str(tmp_path / "copy"))
    shard = next((demo.checkpoints / "step-12").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(StateError, match="is not whole"):
        copy_checkpoint(source, target)
    assert "manifest.json" not in [entry.name for entry in target.list()]
