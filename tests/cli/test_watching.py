"""The verbs that only look on: what they show of a run that is over, and what they refuse."""

from pathlib import Path

import pytest

from raymega.cli.watching import followed, log_text, standings
from raymega.config.load import load, to_yaml
from raymega.driver.records.lock import RunLock
from raymega.errors import ConfigError, StateError
from tests.driver.written import events, steps


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(to_yaml(load("run: {name: demo}", source="x")))
    line = {"event": "RunEnded", "exit_code": 0, "reason": "all 20 steps are committed and saved"}
    (tmp_path / "events.jsonl").write_text(events(line))
    (tmp_path / "journal").mkdir()
    return tmp_path


@pytest.mark.parametrize("watch", [followed, lambda word: standings(word, every_s=60.0)])
def test_a_run_that_is_over_is_shown_once(run, watch):
    (shown,) = watch(str(run))
    assert "demo  ended with exit code 0" in shown
    assert "all 20 steps are committed and saved" in shown


def test_steps_and_events_are_told_as_they_come_until_the_end(run, monkeypatch):
    lock = RunLock.acquire(run / "LOCK", controller="raymega:demo")

    def goes_on(_: float) -> None:
        (run / "metrics.jsonl").write_text(steps({"step": 1}, {"step": 2, "loss": None}))
        lock.release()

    monkeypatch.setattr("raymega.cli.watching.time.sleep", goes_on)
    _, *told = followed(str(run))
    tail = "600 tokens/s  dp=2 tp=1 pp=2"
    assert told == [f"step 1  loss 6.5000  {tail}", f"step 2  loss not finite  {tail}"]


def test_a_rank_that_there_is_not_is_refused(run):
    with pytest.raises(ConfigError, match="has no rank 3: it has no plan yet"):
        log_text(str(run), rank=3, tell=print)


def test_a_log_without_a_line_is_told_to_be_empty_beside_what_is_printed(run, raymega, monkeypatch):
    log = run / "worker-w3.log"
    monkeypatch.setattr("raymega.cli.watching.log_of_rank", lambda _, *, rank: log)
    log.write_text("\n")
    empty = raymega("logs", str(run), "--rank", "3")
    assert (empty.code, empty.out) == (0, "")
    assert empty.err == f"{log} is empty: the worker of rank 3 has printed nothing so far\n"
    log.write_text("hello\n")
    said = raymega("logs", str(run), "--rank", "3")
    assert (said.out, said.err) == ("hello\n", "")


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(StateError, match="is no run"):
        next(followed(str(tmp_path / "nope")))
