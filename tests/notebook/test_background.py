"""A run in the background is somebody's from the moment that `launch` returns; no keeper gets as far as Ray here."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import raymega
from raymega.driver.records.lock import RunLock, read_owner
from raymega.errors import ClusterError, ConfigError, StateError
from raymega.notebook import launching
from raymega.notebook.run import Run
from tests.waiting import eventually

TINY = {"run": {"name": "tiny", "device": "cpu"}, "data": {"tokenizer": "byte", "seq_len": 32}}
WAITS, DIES = "exec tail -f /dev/null", "echo the last words; exit 3"
Launch = Callable[..., Run]


@pytest.fixture
def launched(tmp_path: Path, monkeypatch) -> Iterator[Launch]:
    """Launches `tiny` in the background, with a keeper that does what a line of shell says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    runs: list[Run] = []

    def launch(does: str) -> Run:
        keeper = tmp_path / f"keeper-{len(runs)}"
        keeper.write_text(f"#!/bin/sh\n{does}\n")
        keeper.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(keeper))
        runs.append(raymega.launch(TINY, background=True))
        return runs[-1]

    yield launch
    for run in runs:
        if run.keeper is not None:
            run.keeper.kill()
            run.keeper.wait()


def test_a_run_that_was_just_launched_is_not_over_for_anybody(launched: Launch):
    keeper = launched(WAITS).keeper
    assert keeper is not None
    found = raymega.attach("tiny")
    owner = read_owner(found.directory.lock)
    assert owner is not None
    assert (found.is_over(), owner.pid, owner.controller) == (False, keeper.pid, "keeper of tiny")
    assert (str(found).startswith("tiny  starting  step 0 of"), "starting" in found._repr_html_()) == (True, True)
    with pytest.raises(ClusterError, match=r"is at step 0 after 0\.3 s"):
        found.wait(step=1, limit_s=0.3)


@pytest.mark.parametrize(("does", "words"), [(DIES, "the last words"), ("exit 3", "its process .* printed nothing")])
def test_a_keeper_that_dies_before_it_has_begun_is_told_with_its_last_words(launched: Launch, does, words):
    ours = launched(does)
    found = raymega.attach("tiny")
    eventually(found.is_over)  # though who has started it has not looked yet
    for run in (found, ours):
        eventually(run.is_over)
        with pytest.raises(ClusterError, match=f"run tiny did not begin: {words}"):
            run.pause()
    assert re.match(rf"tiny  did not begin  step 0 of 100\n.*last: {words}", str(found), flags=re.DOTALL)
    assert "did not begin" in found._repr_html_()
    with pytest.raises(StateError, match="its run has not begun; `raymega status tiny` says why"):
        found.timeline()
    assert launched(WAITS).keeper is not None, "it holds up no other"


def test_who_launches_what_was_just_launched_attaches_to_it_and_to_nothing_else(launched: Launch, capsys):
    first = launched(WAITS)
    before = first.directory.launched.read_text().replace("\n  lr: ", "\n  lr: 1")
    first.directory.config.write_text(before)  # of a run that is gone on with
    again = launched(WAITS)
    assert (again, again.keeper) == (first, None)
    assert "run tiny is alive with this config: attached to it" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"another config \(training\.lr\); its owner is keeper of tiny"):
        raymega.launch(TINY, background=True, training={"lr": 0.5})


def test_of_two_who_launch_at_once_the_second_attaches(launched: Launch, monkeypatch, capsys):
    first, look, looks = launched(WAITS), launching._owner_alive, iter([None])
    monkeypatch.setattr(launching, "_owner_alive", lambda directory: next(looks, look(directory)))
    assert launched(WAITS) == first
    assert "attached" in capsys.readouterr().out


def test_a_launch_that_fails_leaves_the_directory_to_others(launched: Launch, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("raymega.notebook.launching.spawn", lambda *_, **__: os.stat(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError):
        launched(WAITS)
    RunLock.acquire(tmp_path / "runs" / "tiny" / "LOCK", controller="client of tiny").release()
