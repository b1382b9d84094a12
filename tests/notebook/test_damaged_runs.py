"""Whatever a run's files have lost, every reader of them answers, or says in one line where something is wrong."""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raymega.cli.replaying import retold
from raymega.cli.watching import followed, standings
from raymega.control.events import PauseAsked, ResumeAsked
from raymega.driver.finding import end_of
from raymega.driver.records import snapshot
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.run_status import status_of
from raymega.errors import StateError
from raymega.notebook.run import Run
from raymega.report.report import report_of
from tests.report.told_runs import gone_on, sheets, told_run, with_gaps

READERS: dict[str, Callable[[RunDirectory], object]] = {
    "status": lambda run: str(status_of(run)),
    "top": lambda run: list(islice(standings(str(run.path), every_s=60.0), 1)),
    "attach": lambda run: list(followed(str(run.path))),
    "report": lambda run: report_of(run, cluster=None, now=0.0),
    "replay": lambda run: retold(run, name="again").text,
    "end": end_of,
    "metrics": lambda run: Run.at(run).metrics(),
    "events": lambda run: Run.at(run).events(),
    "view": lambda run: Run.at(run)._repr_html_(),
    "plot": lambda run: Run.at(run).loss_plot(),
    "timeline": lambda run: Run.at(run).timeline(),
}
FILES = ("metrics.jsonl", "events.jsonl", "journal/000001.jsonl", "journal/000002.jsonl", "workers.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run that lost workers, was paused, repaired, evaluated and started again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "EVERY_TURNS", 16)
        patch.setattr(snapshot, "TOLD_AGAIN", 4)
        path = tmp_path_factory.mktemp("whole")
        asked = {4: PauseAsked(request=1), 9: ResumeAsked(request=2)}
        told_run(path, kill_once={13: 2}, tell_at=asked, break_once={7})
        return sheets(with_gaps(gone_on(path)))


def keys_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each key of a line is, those of what is in it too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        if isinstance(value, dict):
            yield (*path, key)
        yield from keys_of(item, (*path, key))


def without(line: Any, path: tuple[Any, ...]) -> bytes:
    """The line without the key at `path`."""
    holder = line
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return json.dumps(line).encode() + b"\n"


@st.composite
def damage(draw: st.DrawFn, run: RunDirectory) -> tuple[str, bytes]:
    """A file of the run, and what stands in it: cut anywhere, or a line without one of its keys."""
    name = draw(st.sampled_from(FILES))
    text = (run.path / name).read_bytes()
    if draw(st.booleans()):
        return name, text[: draw(st.integers(0, len(text)))]
    lines = text.splitlines(keepends=True)
    at = draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[at])
    lines[at] = without(line, draw(st.sampled_from(list(keys_of(line)))))
    return name, b"".join(lines)


def refusal_of(read: Callable[[RunDirectory], object], run: RunDirectory) -> str | None:
    """The one line with which a reader refuses; None: it answers."""
    try:
        read(run)
    except StateError as error:
        return str(error)
    return None


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), reader=st.sampled_from(sorted(READERS)), keeps_snapshots=st.booleans())
def test_every_reader_answers_or_names_what_is_wrong(whole, tmp_path, data, reader, keeps_snapshots):
    run = RunDirectory(path=tmp_path / "run")
    shutil.copytree(whole.path, run.path, dirs_exist_ok=True)
    name, text = data.draw(damage(whole))
    (run.path / name).write_bytes(text)
    for file in () if keeps_snapshots else run.journal.glob("*.snapshot"):
        file.unlink()
    told = refusal_of(READERS[reader], run)
    assert told is None or (str(run.path) in told and "\n" not in told and len(told) < 700)


def test_an_event_that_cannot_follow_is_told_in_one_line_with_the_way_out(whole, tmp_path: Path):
    run = RunDirectory(path=tmp_path / "run")
    shutil.copytree(whole.path, run.path, ignore=shutil.ignore_patterns("*.snapshot"))
    file = run.journal / "000001.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:8], *lines[20:]]))
    with pytest.raises(StateError, match=r"000001\.jsonl:\d+: \w+ does not follow .* of another version of raymega"):
        status_of(run)
