"""The journal of a controller: every event that had an effect, what was decided, and why.

    journal/000001.jsonl   {"epoch": 1, "t": .., "rules": {..}, "checkpoint": null}           how it began
                           {"seq": 1, "t": .., "event": {..}, "state": "Starting", "commands": [..], "reason": ".."}
    journal/000002.jsonl   a controller that took over

The number of the file is the controller's epoch, taken by making the file: of two controllers one gets it. Fed to
`control.codec.replay`, a journal gives the same decisions. What decides who is in the run, or that a checkpoint or
an end exists, is on the disk before it is carried out; a plain step is not waited for.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raymega.control.codec import checkpoint_from_json, command_to_json, event_from_json, event_to_json, plain
from raymega.control.commands import Evaluate, FeedFrom, Grant, WriteStep
from raymega.control.events import Event
from raymega.control.loop import Turn
from raymega.control.policy import Rules
from raymega.control.states import Checkpoint
from raymega.driver.json_lines import LineWriter, read_lines
from raymega.driver.run_dir import cannot_write
from raymega.errors import StateError

LIGHT = (WriteStep, Grant, Evaluate, FeedFrom)  # commands that need not be on the disk before they are carried out


class Journal:
    """Writes one controller's journal; a watcher of the loop, to be the first of them."""

    def __init__(self, *, epoch: int, lines: LineWriter) -> None:
        self.epoch = epoch
        self._lines = lines

    @classmethod
    def begin(cls, folder: Path, *, rules: Rules, checkpoint: Checkpoint | None, t: float) -> "Journal":
        """Take the next epoch in `folder` and write how this controller begins."""
        epoch, file = _take_epoch(folder)
        lines = LineWriter(file)
        lines.add({"epoch": epoch, "t": t, "rules": plain(rules), "checkpoint": plain(checkpoint)})
        lines.sync()
        return cls(epoch=epoch, lines=lines)

    def saw(self, turn: Turn) -> None:
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

    def close(self) -> None:
        self._lines.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line, read back; `state` by name, `commands` as written."""

    seq: int
    t: float
    event: Event
    state: str
    commands: tuple[dict[str, Any], ...]  # Any: JSON
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalHead:
    """How a controller began."""

    epoch: int
    t: float
    rules: Rules
    checkpoint: Checkpoint | None


def journals(folder: Path) -> tuple[Path, ...]:
    """The journals of a run, by epoch."""
    return tuple(sorted(file for file in folder.glob("*.jsonl")))


def read_head(file: Path) -> JournalHead:
    """How the journal's controller began. Raises: StateError if not even that was written."""
    head = next(read_lines(file), None)
    if head is None:
        raise StateError(f"the journal {file} is empty: its controller died before it began")
    return JournalHead(
        epoch=head["epoch"],
        t=head["t"],
        rules=Rules(**head["rules"]),
        checkpoint=checkpoint_from_json(head["checkpoint"]),
    )


def read_entries(file: Path) -> Iterator[JournalEntry]:
    """The journal's entries in order; a torn last line is none."""
    lines = read_lines(file)
    next(lines, None)
    for line in lines:
        yield JournalEntry(
            seq=line["seq"],
            t=line["t"],
            event=event_from_json(line["event"]),
            state=line["state"],
            commands=tuple(line["commands"]),
            reason=line["reason"],
        )


def _take_epoch(folder: Path) -> tuple[int, Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    epoch = max((int(file.stem) for file in journals(folder)), default=0)
    while True:
        epoch += 1
        file = folder / f"{epoch:06d}.jsonl"
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            continue  # another controller was quicker
        except OSError as error:
            raise cannot_write(file, error) from error
        return epoch, file
