"""A run that is submitted again waits for its controller to end it, and only then."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raymega.config.schema import Config
from raymega.driver import resubmitting
from raymega.driver.records.lock import RunLock
from raymega.driver.resubmitting import wait_for_the_run_before

Hold = Callable[[str], RunLock]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "tiny").mkdir()
    return Config.model_validate({"run": {"name": "tiny", "dir": str(tmp_path)}, "checkpoint": {"timeout_s": 20}})


def held(config: Config, *, by: str) -> RunLock:
    return RunLock.acquire(Path(config.run.dir) / "tiny" / "LOCK", controller=by)


def test_it_waits_until_a_controller_that_is_to_end_the_run_has_done_so(config: Config, monkeypatch, capsys):
    monkeypatch.setattr(resubmitting, "_is_ending", lambda directory: True)
    lock = held(config, by="raymega:tiny")
    releasing = threading.Timer(0.3, lock.release)
    releasing.start()
    wait_for_the_run_before(config)
    releasing.join()
    assert not (Path(config.run.dir) / "tiny" / "LOCK").exists()
    assert "raymega:tiny still saves" in capsys.readouterr().out


@pytest.mark.parametrize(("by", "ending"), [("raymega:tiny", False), ("client of tiny", True)])
def test_a_run_that_trains_on_or_is_only_beginning_is_not_waited_for(
    config: Config, by: str, ending: bool, monkeypatch
):
    monkeypatch.setattr(resubmitting, "_is_ending", lambda directory: ending)
    lock = held(config, by=by)
    wait_for_the_run_before(config)
    lock.release()


def test_where_there_is_no_run_nobody_is_asked(config: Config):
    wait_for_the_run_before(config)
    wait_for_the_run_before(Config())
