"""What `metrics.jsonl` tells of a run's steps, in one pass over it; its newest lines without one.

losses        (step, loss)          all but those that are not finite
validations   (step, val_loss)      of those that were evaluated
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from raymega.driver.records.json_lines import newest_line, newest_lines, read_lines
from raymega.driver.records.line_shapes import STEP_LINE, Line

RECENT = 50
Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """All steps of a run, in order. `first`: None before the first; `recent`: the newest lines, oldest first."""

    losses: Points = ()
    validations: Points = ()
    first: Line | None = None
    recent: tuple[Line, ...] = ()


def steps_of(file: Path) -> Steps:
    """Read the metrics of a run. Raises: StateError naming a line that is broken."""
    losses, validations = list[tuple[int, float]](), list[tuple[int, float]]()
    first, recent = None, deque[Line](maxlen=RECENT)
    for line in all_steps(file):
        first = first or line
        recent.append(line)
        if line["loss"] is not None:
            losses.append((line["step"], line["loss"]))
        if line.get("val_loss") is not None:
            validations.append((line["step"], line["val_loss"]))
    return Steps(losses=tuple(losses), validations=tuple(validations), first=first, recent=tuple(recent))


def all_steps(file: Path) -> Iterator[Line]:
    """Every step, in order. Raises: StateError naming a line that is broken."""
    return read_lines(file, shape=STEP_LINE)


def newest_step(file: Path) -> Line | None:
    """The newest committed step."""
    return newest_line(file, shape=STEP_LINE)


def newest_validation(file: Path) -> float | None:
    """The validation loss of the newest step that was evaluated."""
    lines = newest_lines(file, shape=STEP_LINE, having="val_loss")
    return next((float(line["val_loss"]) for line in lines if line.get("val_loss") is not None), None)


def recent_steps(file: Path) -> tuple[Line, ...]:
    """The newest steps, oldest first."""
    return tuple(islice(newest_lines(file, shape=STEP_LINE), RECENT))[::-1]
