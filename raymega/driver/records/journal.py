"""The journal of a controller: every event that had an effect, what was decided, and why.

    journal/000001.jsonl   {"epoch": 1, "t": .., "rules": {..}, "checkpoint": null, ..}       how it began
                           {"seq": 1, "t": .., "event": {..}, "state": "Starting", "commands": [..], "reason": ".."}
    journal/000002.jsonl   {"epoch": 2, .., "takes_over": {"epoch": 1, "seq": 57}}     a controller that took over

The number of the file is the controller's epoch (`records.tenure`). Fed to the brain again, a journal gives the same
decisions (`records.replay`), so it is a log of what is to be done, written ahead of doing it: every line is with the
operating system before the first command of it leaves, which a killed process cannot undo. What decides who is in the
run, or that a checkpoint or an end exists, is on the disk by then, which a killed machine cannot undo either; a plain
step is not waited for, since it is in the workers too, nor is the order to leave a generation.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raymega.config.schema import Config
from raymega.control.codec import checkpoint_from_json, command_to_json, event_from_json, event_to_json, plain
from raymega.control.commands import AbortGeneration, Evaluate, FeedFrom, Grant, WriteStep
from raymega.control.events import Event
from raymega.control.loop import Turn
from raymega.control.policy import Rules
from raymega.control.states import Checkpoint
from raymega.driver.records.json_lines import LineWriter, Place, placed_lines
from raymega.driver.records.line_shapes import HEAD_LINE, TURN_LINE
from raymega.driver.records.tenure import Tenure
from raymega.errors import StateError

# Commands that need not be on the disk before they are carried out. Who takes over has everyone leave in any case.
LIGHT = (WriteStep, Grant, Evaluate, FeedFrom, AbortGeneration)
MOST_WORDS = 240  # letters of an error that are shown to people


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What a controller took over: the decisions of `epoch` up to number `seq`; what came later counts for nothing."""

    epoch: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalHead:
    """How a controller began: a launch of a run from `checkpoint`, or in the place of an earlier controller of it.

    Args:
        t: from when on the time is its own; for a launch, when it was asked for.
        config: as resolved; a later launch in the same directory may have another.
    """

    epoch: int
    t: float
    rules: Rules
    checkpoint: Checkpoint | None
    launch: str = ""
    takes_over: Inherited | None = None
    config: Config | None = None


class Journal:
    """Writes one controller's journal; a watcher of the loop, to be the first of them."""

    def __init__(self, *, tenure: Tenure, lines: LineWriter) -> None:
        self._tenure, self._lines = tenure, lines

    @classmethod
    def begin(cls, tenure: Tenure, *, head: JournalHead) -> "Journal":
        """Write how this controller begins."""
        lines = LineWriter(tenure.file)
        config = None if head.config is None else head.config.model_dump(mode="json")
        lines.add({**plain(replace(head, config=None)), "config": config})
        lines.sync()
        return cls(tenure=tenure, lines=lines)

    def saw(self, turn: Turn) -> None:
        """Write the turn down. Raises: Superseded if this controller is not to carry it out."""
        decision = turn.decision
        self._lines.add(
            {
                "seq": turn.seq,
                "t": turn.t,
                "event": event_to_json(turn.event),
                "state": type(decision.state).__name__,
                "commands": [command_to_json(command) for command in decision.commands],
                "reason": decision.reason,
            }
        )
        if any(not isinstance(command, LIGHT) for command in decision.commands):
            self._lines.sync()
        self._tenure.check()

    def close(self) -> None:
        self._lines.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line, read back; `state` by name, `commands` as written."""

    place: Place
    seq: int
    t: float
    event: Event
    state: str
    commands: tuple[dict[str, Any], ...]  # Any: JSON
    reason: str


def read_head(file: Path) -> JournalHead:
    """How the journal's controller began. Raises: StateError if not even that was written."""
    known = next(placed_lines(file, shape=HEAD_LINE), None)
    if known is None:
        raise StateError(f"the journal {file} is empty: its controller died before it began")
    place, head = known
    inherited, config = head.get("takes_over"), head.get("config")
    with _as_this_program_writes(place, what="how a controller began"):
        return JournalHead(
            epoch=head["epoch"],
            t=head["t"],
            rules=Rules(**head["rules"]),
            checkpoint=checkpoint_from_json(head["checkpoint"]),
            launch=head.get("launch", ""),
            takes_over=None if inherited is None else Inherited(**inherited),
            config=None if config is None else Config.model_validate(config),
        )


def read_entries(file: Path, *, offset: int = 0) -> Iterator[JournalEntry]:
    """The journal's entries in order, those that begin at byte `offset` or later; a torn last line is none.

    Raises: StateError naming the line that is not as it was written.
    """
    with file.open("rb") as lines:
        head = lines.readline()
    for place, line in placed_lines(file, offset=max(offset, len(head)), shape=TURN_LINE):
        yield _entry(line, place=place)


def _entry(line: dict[str, Any], *, place: Place) -> JournalEntry:
    with _as_this_program_writes(place, what=f"turn {line['seq']}"):
        return JournalEntry(
            place=place,
            seq=line["seq"],
            t=line["t"],
            event=event_from_json(line["event"]),
            state=line["state"],
            commands=tuple(line["commands"]),
            reason=line["reason"],
        )


@contextmanager
def _as_this_program_writes(place: Place, *, what: str) -> Iterator[None]:
    """Raise StateError for a line of JSON that says something else, or lacks something."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, StateError) as error:
        raise unlike_written(place, what=f"{what} cannot be read", error=error) from error


def unlike_written(place: Place, *, what: str, error: Exception) -> StateError:
    """What to tell of a line that this program cannot have written as it stands there now."""
    why = textwrap.shorten(f"{type(error).__name__}: {error}", width=MOST_WORDS, placeholder=" ..")
    return StateError(
        f"{place}: {what} ({why}): the line, or one before it, is damaged or of another version of raymega. Put it "
        "back as it was written, or read the run with that version"
    )
