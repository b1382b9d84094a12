"""How one waits for a run that others lead: its files say when a step, a checkpoint or its end has come.

wait_for(step=120)     metrics.jsonl has step 120           wait_for(saved=120)     events.jsonl: it is published
wait_until_back()      events.jsonl: the void steps of a rewind are off the metrics
"""

import time
from collections.abc import Callable, Iterable

from raymega.driver.arguments import whole_or_none
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.line_shapes import EVENT_LINE, Line
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.steps import newest_step
from raymega.errors import ClusterError, StateError
from raymega.notebook.reaching import LOOK_S, going_on, how_it_ended

BACK_LIMIT_S = 60.0


def committed_of(directory: RunDirectory) -> int:
    """Committed steps."""
    newest = newest_step(directory.metrics)
    return 0 if newest is None else int(newest["step"])


def wait_for(
    directory: RunDirectory, *, step: int | None, saved: int | None, limit_s: float, is_over: Callable[[], bool]
) -> None:
    """Block until that step is committed, or that checkpoint complete, or, without either, the run is over.

    Raises: StateError if it is over before that; ClusterError if it takes longer than `limit_s`.
    """
    name, until = directory.path.name, time.monotonic() + limit_s
    step, saved = (whole_or_none(given, name=of, least=0) for given, of in ((step, "step"), (saved, "saved")))
    with going_on(name):
        while not _has_come(directory, step=step, saved=saved):
            if is_over():
                if (step is None and saved is None) or _has_come(directory, step=step, saved=saved):
                    return
                what = f"step {step}" if saved is None else f"the checkpoint of step {saved}"
                why = how_it_ended(directory)
                raise StateError(f"run {name} is over at step {committed_of(directory)}, before {what}: {why}")
            if time.monotonic() > until:
                raise ClusterError(f"run {name} is at step {committed_of(directory)} after {limit_s:g} s. Wait longer.")
            time.sleep(LOOK_S)


def wait_until_back(directory: RunDirectory, *, is_over: Callable[[], bool]) -> None:
    """Block until the newest rewind that was granted has come about, or the run is over."""
    until = time.monotonic() + BACK_LIMIT_S
    with going_on(directory.path.name):
        while not (is_back(read_lines(directory.events, shape=EVENT_LINE)) or is_over() or time.monotonic() > until):
            time.sleep(LOOK_S)


def saved_steps(events: Iterable[Line]) -> set[int]:
    """Checkpoints that were completed; of those that a rewind has made void, only if they were made again."""
    saved: set[int] = set()
    for line in events:
        if line["event"] == "CheckpointPublished":
            saved.add(int(line["step"]))
        elif _goes_back(line):
            saved = {step for step in saved if step <= _back_to(line)}
    return saved


def is_back(events: Iterable[Line]) -> bool:
    """Are the void steps of the newest rewind off the metrics?"""
    back = True
    for line in events:
        if _goes_back(line):
            back = _back_to(line) == line["step"]  # then there are none
        back = back or "Rewind" in line["commands"]
    return back


def _goes_back(line: Line) -> bool:
    return bool(line["event"] == "RewindAsked" and "WithdrawCheckpoints" in line["commands"])


def _back_to(line: Line) -> int:
    """The step that a rewind goes back to; one that does not say so goes back to none."""
    to = line.get("to")
    return int(to.get("step", 0)) if isinstance(to, dict) else 0


def _has_come(directory: RunDirectory, *, step: int | None, saved: int | None) -> bool:
    if saved is not None:
        return saved in saved_steps(read_lines(directory.events, shape=EVENT_LINE))
    return step is not None and committed_of(directory) >= step
