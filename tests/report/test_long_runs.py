"""A long run shows itself as soon as a short one: what is read of it does not grow with its steps, or once at most."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from raymega.cli.watching import followed
from raymega.driver.records import json_lines, snapshot
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.run_status import status_of
from raymega.notebook.run import Run
from raymega.report.report import report_of
from tests.report.told_runs import long_run

STEPS, EVERY, AGAIN = 600, 100, 20
TAIL = EVERY + AGAIN + 20  # turns behind the newest snapshot; the rest are no steps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "EVERY_TURNS", EVERY)
        patch.setattr(snapshot, "TOLD_AGAIN", AGAIN)
        return long_run(tmp_path_factory.mktemp("long"), steps=STEPS)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Lines that were read, by the name of their file."""
    lines, real = Counter[str](), json_lines._read

    def counting(text: bytes, *, place: json_lines.Place, shape: json_lines.Shape) -> json_lines.Line:
        lines[place.file.name] += 1
        return real(text, place=place, shape=shape)

    monkeypatch.setattr(json_lines, "_read", counting)
    return lines


def test_a_status_reads_the_ends_of_the_files(run: RunDirectory, read: Counter[str]):
    assert status_of(run).step == STEPS
    assert (read["metrics.jsonl"], read["events.jsonl"]) == (1, 1)
    assert read["000001.jsonl"] <= TAIL


@pytest.mark.parametrize(
    "show",
    [
        lambda run: Run.at(run)._repr_html_(),
        lambda run: Run.at(run).loss_plot().text,
        lambda run: report_of(run, cluster=None, now=0.0),
    ],
)
def test_a_picture_of_a_run_is_one_pass_over_its_files(
    run: RunDirectory, read: Counter[str], show: Callable[[RunDirectory], str]
):
    assert "<polyline" in show(run)
    events = len(run.events.read_text().splitlines())
    assert read["metrics.jsonl"] <= STEPS + 1, "the status reads the newest"
    assert read["events.jsonl"] <= events + 1
    assert read["000001.jsonl"] <= TAIL


def test_a_run_that_is_waited_for_is_not_read_again_and_again(run: RunDirectory, read: Counter[str]):
    assert [Run.at(run).committed for _ in range(5)] == [STEPS] * 5
    assert read == {"metrics.jsonl": 5}


def test_whoever_follows_a_run_reads_each_line_once(tmp_path: Path, read: Counter[str], monkeypatch):
    run, left = long_run(tmp_path, steps=40), [True, True, True, False]
    read.clear()
    monkeypatch.setattr("raymega.cli.watching._is_alive", lambda _: left.pop(0))
    monkeypatch.setattr("raymega.cli.watching.time.sleep", lambda _: None)
    assert len(list(followed(str(run.path)))) == 1, "only where it stands: all of it is known"
    assert read["metrics.jsonl"] == 40 + 2, "once through, the last one to begin with, and that of the status"
