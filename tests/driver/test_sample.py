"""A run ends with a sample of text only for one who reads along, and only once all its steps are committed."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from raymega.config.schema import Config
from raymega.driver import background
from raymega.driver.news import Ended
from raymega.driver.train import train
from raymega.job import entry

STEPS = 7


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.model_validate(
        {
            "run": {"name": "tiny", "dir": str(tmp_path), "device": "cpu"},
            "model": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2},
            "data": {"tokenizer": "byte", "seq_len": 32},
            "training": {"steps": STEPS, "batch_size": 8, "micro_batch_size": 4},
        }
    )


def ends(monkeypatch: pytest.MonkeyPatch, *, committed: int, exit_code: int) -> None:
    """Have a run end like this without Ray; its newest checkpoint is whole."""

    def followed(prepared, *, shown, **_: object) -> Ended:
        shown.committed = committed
        return Ended(exit_code=exit_code, reason="over")

    monkeypatch.setattr("raymega.driver.train._followed", followed)
    monkeypatch.setattr("raymega.driver.train.newest_complete", lambda uri: SimpleNamespace(uri=f"{uri}/step-3"))
    monkeypatch.setattr("raymega.driver.train._sample", lambda config, **how: "KING HENRY. My lord")


@pytest.mark.parametrize(
    ("committed", "exit_code", "asked", "shown"),
    [
        (STEPS, 0, True, True),
        (STEPS, 0, False, False),  # nobody reads along
        (3, 0, True, False),  # stopped, saved
        (STEPS, 130, True, False),
        (3, 75, True, False),
    ],
)
def test_a_sample_is_the_end_of_a_whole_run_that_someone_reads(
    config, monkeypatch, capsys, committed: int, exit_code: int, asked: bool, shown: bool
):
    ends(monkeypatch, committed=committed, exit_code=exit_code)
    assert train(config, resume="none", sample=asked) == exit_code
    assert ("KING HENRY. My lord" in capsys.readouterr().out) is shown


def keeper(file: Path) -> object:
    (file.parent / "tiny").mkdir()
    return background.main(str(file), "none", "id of the lock")


def job(file: Path) -> object:
    return entry.run(config=str(file), sets=[], resume="none")


@pytest.mark.parametrize(("begins", "module"), [(keeper, background), (job, entry)], ids=["background", "job"])
def test_a_run_that_nobody_reads_draws_none(begins, module, monkeypatch, tmp_path: Path):
    asked: list[bool] = []
    monkeypatch.setattr(module, "train", lambda config, *, resume, sample=False, lock=None: asked.append(sample) or 0)
    monkeypatch.setattr(entry, "wait_for_the_run_before", lambda config: None)
    monkeypatch.setattr(background.signal, "signal", lambda number, handler: None)
    (tmp_path / "config.yaml").write_text(f"run: {{name: tiny, dir: {tmp_path}}}\n")
    with contextlib.suppress(typer.Exit):
        begins(tmp_path / "config.yaml")
    assert asked == [False]
