"""What a run is given before anything starts: paths that hold everywhere, and a checkpoint to begin from."""

from pathlib import Path

import pytest

from raymega.config.schema import Config
from raymega.driver.paths import with_absolute_paths
from raymega.driver.preflight import resolved
from raymega.errors import StateError


def config(**sections: dict[str, object]) -> Config:
    return Config.model_validate(sections)


def test_paths_become_absolute_and_names_and_uris_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    here = with_absolute_paths(
        config(
            run={"dir": "runs", "init_from": "old/step-3"},
            data={"train": "prepared", "valid": "/there", "tokenizer": "prepared"},
            checkpoint={"path": "s3://bucket/prefix"},
        )
    )
    assert (here.run.dir, here.run.init_from) == (f"{tmp_path}/runs", f"{tmp_path}/old/step-3")
    assert (here.data.train, here.data.valid, here.data.tokenizer) == (
        f"{tmp_path}/prepared", "/there", f"{tmp_path}/prepared",
    )  # fmt: skip
    assert here.checkpoint.path == "s3://bucket/prefix"
    assert with_absolute_paths(config()).data == config().data


def test_the_parts_of_a_blend_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    blend = [{"path": "mine", "weight": 1}, {"path": "shakespeare", "weight": 2}]
    here = with_absolute_paths(config(data={"train": blend}))
    assert [part.path for part in here.data.train] == [f"{tmp_path}/mine", "shakespeare"]


def test_a_checkpoint_to_begin_from_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match=r"run\.init_from: .*old/step-3 is no checkpoint, and holds none\. Name a run"):
        resolved(config(run={"name": "demo", "init_from": "old/step-3"}, data={"tokenizer": "byte"}))
