"""What happened, in words: the lines of `events.jsonl` as marks under a plot and as rows of a table.

{"event": "WorkerLost", "commands": ["AbortGeneration"], "reason": "w2 is lost: ..", ..}
    --> Mark(kind="worker lost", step=49)
    --> Entry(what="worker lost", reason="w2 is lost: ..", orders="abort generation")
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from raymega.driver.records.history import History
from raymega.pictures.losses import Mark

KINDS = {
    "WorkerLost": "worker lost",
    "StepRepaired": "step repaired",
    "NodeDraining": "node to leave",
    "Resized": "plan changed",
    "RolledBack": "change given up",
    "ControllerTakenOver": "controller replaced",
    "CheckpointPublished": "checkpoint",
    "StopAsked": "asked by people",
    "ResizeAsked": "asked by people",
    "PauseAsked": "asked by people",
    "ResumeAsked": "asked by people",
    "SetAsked": "asked by people",
    "CheckpointAsked": "asked by people",
    "RewindAsked": "asked by people",
    "DisturbAsked": "asked by people",
    "Forked": "forked",
}
WORDS = {
    "Tick": "time passed",
    "NodesChanged": "nodes changed",
    "WorkerBorn": "worker is up",
    "WorkersReady": "workers are ready",
    "GenerationLeft": "worker left its group",
    "ShardsSaved": "part of a checkpoint saved",
    "StepCommitted": "step committed",
    "StateMoved": "state moved",
    "RunEnded": "run ended",
}
Line = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the table. `kind`: of its mark, empty for one that has none."""

    up_s: float
    step: int
    what: str
    kind: str
    reason: str
    orders: str


def kind_of(line: Line) -> str:
    """The kind of mark that an event has; empty: none."""
    if "Rewind" in line["commands"] and line["event"] not in ("StepRepaired", "RunEnded"):
        return "back to a checkpoint"
    return KINDS.get(line["event"], "")


def marks_of(lines: Iterable[Line], *, history: History) -> tuple[Mark, ...]:
    """What is marked under the loss; the run's later starts too."""
    found = [
        Mark(step=line["step"], kind=kind_of(line), words=shortened(str(line.get("reason", ""))))
        for line in lines
        if kind_of(line)
    ]
    again = [
        Mark(step=launch.step, kind="started again", words=f"from the checkpoint of step {launch.step}")
        for launch in history.launches[1:]
    ]
    return (*found, *again)


def entries_of(lines: Iterable[Line], *, history: History) -> tuple[Entry, ...]:
    """Every event, oldest first."""
    return tuple(
        Entry(
            up_s=history.at_s(line["t"]),
            step=line["step"],
            what=kind_of(line) or WORDS.get(line["event"]) or spaced(line["event"]),
            kind=kind_of(line),
            reason=shortened(str(line.get("reason", ""))),
            orders=", ".join(spaced(name) for name in dict.fromkeys(line["commands"])),
        )
        for line in lines
    )


def shortened(words: str) -> str:
    """Words with the first letters of each node's id, of which Ray's have 56."""
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{24,}\b", r"\1", words)


def spaced(name: str) -> str:
    """`AbortGeneration` as `abort generation`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
