"""Ray Train's settings are honoured or refused, and its failures counted as it counts them; no run is started."""

import math
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.fs
import pytest
import ray.train

from raymega.config.schema import Config
from raymega.control.events import StopAsked
from raymega.errors import ConfigError
from raymega.ray_train import MegaTrainer, MegaTrainingFailed, Reports, Tries, checkpoint_at, scaled, stored
from tests.driver.runs import turns_of

TINY: dict[str, Any] = {
    "run": {"device": "cpu"},
    "model": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2},
    "data": {"tokenizer": "byte", "seq_len": 32},
    "training": {"steps": 6, "batch_size": 8, "micro_batch_size": 4},
    "checkpoint": {"every_steps": 3},
    "log": {"tensorboard": False},
}


def test_name_and_storage_and_checkpoints_are_those_of_the_run_config(tmp_path: Path):
    kept = ray.train.CheckpointConfig(num_to_keep=5)
    config = stored(Config(), ray.train.RunConfig(name="demo", storage_path=str(tmp_path), checkpoint_config=kept))
    assert (config.run.name, config.run.dir, config.checkpoint.keep) == ("demo", str(tmp_path), 5)
    assert config.checkpoint.path is None
    same = stored(Config(), ray.train.RunConfig(name="demo", storage_path=f"file://{tmp_path}"))
    assert (same.run.dir, same.checkpoint.keep) == (str(tmp_path), Config().checkpoint.keep)


def test_a_storage_that_is_no_directory_has_the_checkpoints():
    config = stored(Config(), ray.train.RunConfig(name="demo", storage_path="s3://bucket/runs?region=x"))
    assert config.checkpoint.path == "s3://bucket/runs/demo/checkpoints?region=x"
    assert config.run.dir == Config().run.dir


def test_what_cannot_be_honoured_is_refused_all_at_once():
    told = ray.train.RunConfig(
        name="a", storage_path="bucket/x", storage_filesystem=pyarrow.fs.LocalFileSystem(),
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss"),
        worker_runtime_env={"pip": ["x"]},
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"storage_filesystem is set.*worker_runtime_env is set.*num_to_keep with"):
        stored(Config(), told)


def test_workers_and_their_kind_are_those_of_the_scaling_config():
    some = scaled(Config(), ray.train.ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2}))
    assert (some.run.devices, some.run.device, some.run.cpus_per_worker) == (4, "cpu", 2)
    elastic = scaled(Config(), ray.train.ScalingConfig(num_workers=(2, 6), use_gpu=True))
    assert (elastic.elastic.min_devices, elastic.run.devices, elastic.run.device) == (2, 6, "cuda")


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ({"resources_per_worker": {"CPU": 1, "GPU": 2}, "use_gpu": True}, "resources_per_worker"),
        ({"resources_per_worker": {"CPU": 0.5}}, "resources_per_worker"),
        ({"resources_per_worker": {"CPU": 1, "mine": 1}}, "resources_per_worker"),
        ({"placement_strategy": "SPREAD"}, "placement_strategy"),
        ({"accelerator_type": "A100", "use_gpu": True}, "accelerator_type"),
    ],
)
def test_workers_that_raymega_does_not_make_are_refused_by_name(told: dict[str, Any], names: str):
    with pytest.raises(ConfigError, match=rf"ScalingConfig\.{names} is"):
        scaled(Config(), ray.train.ScalingConfig(num_workers=2, **told))


def test_failure_settings_that_nothing_is_made_of_are_refused_by_name(tmp_path: Path):
    told = ray.train.FailureConfig(max_failures=1, controller_failure_limit=2)
    with pytest.raises(ConfigError, match=r"FailureConfig\.controller_failure_limit is set"):
        stored(Config(), ray.train.RunConfig(name="a", storage_path=str(tmp_path), failure_config=told))


def test_preemptions_and_failures_are_counted_apart():
    told = ray.train.RunConfig(failure_config=ray.train.FailureConfig(max_failures=1, max_preemption_failures=-1))
    tries = Tries.of(told)
    assert tries == Tries(failures=1, preemptions=math.inf)
    assert not tries.without(75).without(75).without(1).are_used_up
    assert tries.without(1).without(4).are_used_up
    assert Tries.of(None).without(1).are_used_up


@pytest.mark.parametrize(
    ("codes", "most", "started", "ends_with"),
    [([75, 1, 0], 1, 3, None), ([1, 1, 0], 1, 2, 1), ([1], 0, 1, 1), ([6, 0], 5, 1, 6), ([75, 75, 0], 0, 3, None)],
)
def test_a_run_is_started_again_as_often_as_it_may_be(
    tmp_path: Path, monkeypatch, codes: list[int], most: int, started: int, ends_with: int | None
):
    left = list(codes)
    monkeypatch.setattr("raymega.ray_train.train", lambda config, *, watch: left.pop(0))
    told = ray.train.RunConfig(
        name="a", storage_path=str(tmp_path), failure_config=ray.train.FailureConfig(max_failures=most)
    )
    trainer = MegaTrainer(TINY, run_config=told)
    if ends_with is None:
        assert trainer.fit().error is None
    else:
        with pytest.raises(ray.train.TrainingFailedError, match=f"exit code {ends_with}"):
            trainer.fit()
    assert len(codes) - len(left) == started


def test_a_process_that_is_told_to_go_starts_its_run_no_more(tmp_path: Path, monkeypatch):
    left = [75, 0]
    (asked,) = (turn for turn in turns_of(tell_at={4: StopAsked(by="terminate")}) if isinstance(turn.event, StopAsked))
    monkeypatch.setattr("raymega.ray_train.train", lambda config, *, watch: watch(asked) or left.pop(0))
    trainer = MegaTrainer(TINY, run_config=ray.train.RunConfig(name="a", storage_path=str(tmp_path)))
    with pytest.raises(MegaTrainingFailed, match="exit code 75"):
        trainer.fit()


def test_a_run_that_cannot_start_fails_with_its_reason_and_code(tmp_path: Path):
    told = ray.train.RunConfig(name="a", storage_path=str(tmp_path))
    trainer = MegaTrainer(TINY, run_config=told, data={"train": str(tmp_path / "nothing")})
    with pytest.raises(MegaTrainingFailed, match="nothing") as failed:
        trainer.fit()
    again = pickle.loads(pickle.dumps(failed.value))
    assert (again.exit_code, again.reason) == (3, failed.value.reason)


class Kept(ray.train.UserCallback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.checkpoints: list[str] = []
        self.errors: list[Exception] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.run_config = run_context.get_run_config()
        if checkpoint is None:
            self.steps.append(metrics[0]["step"])
        else:
            self.checkpoints.append(checkpoint.path)

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        self.errors += worker_exceptions.values()


def test_callbacks_are_told_of_every_step_and_every_checkpoint(monkeypatch):
    monkeypatch.setattr("raymega.ray_train.checkpoint_at", lambda uri: SimpleNamespace(path=uri))
    kept = Kept()
    told = ray.train.RunConfig(name="a")
    watch = Reports((kept,), run_config=told)
    for turn in turns_of():
        watch(turn)
    assert kept.steps == list(range(1, 21))
    assert len(kept.checkpoints) == 4
    assert kept.run_config is told
    error = MegaTrainingFailed("a", 1)
    watch.failed(error)
    assert kept.errors == [error]


def test_a_checkpoint_brings_its_files(tmp_path: Path):
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3" / "manifest.json").write_text("{}")
    with checkpoint_at(str(tmp_path / "step-3")).as_directory() as folder:
        assert [file.name for file in Path(folder).iterdir()] == ["manifest.json"]
