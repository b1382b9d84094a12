"""Keeps `events.jsonl`: what happened to the run, what was done about it, and why; for people and scripts.

    {"t": .., "seq": 7, "generation": 1000001, "step": 13, "event": "WorkerLost", "state": "Settling",
     "commands": ["AbortGeneration"], "reason": "w2 is lost: ..", "worker": "w2", "node": "n1", ..}
    {.., "event": "StepRepaired", "step": 13, "recomputed": 4, "detect_s": .., "regroup_s": .., "repair_s": .., ..}
    {.., "event": "NodeDraining", "node": "n1", "by_t": .., "cause": ..}
    {.., "event": "Resized", "before": "dp=2 tp=1 pp=2", "after": "dp=1 tp=1 pp=2", "predicted_s": .., "actual_s": ..}
    {.., "event": "RunEnded", "exit_code": 0, "steps_lost": 0}

Steps are not in it (they are in `metrics.jsonl`), nor the parts of a checkpoint. `seq` grows over all controllers.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from raymega.control.codec import plain
from raymega.control.commands import Answer, Finish, WriteRepair, WriteTransition
from raymega.control.events import DrainAsked, ShardsSaved, StateMoved, StepCommitted
from raymega.control.loop import Turn
from raymega.driver.records.json_lines import LineWriter, newest_line, read_lines
from raymega.driver.records.line_shapes import EVENT_LINE
from raymega.driver.records.run_dir import write_whole

FORKED = "Forked"  # the first line of a run that begins with the state of another
HEAVY = ("decided", "heard", "work", "part")  # what rulings and certificates are made on; it is in the journal


class EventsSink:
    """A watcher of the loop."""

    def __init__(self, file: Path) -> None:
        self._lines = LineWriter(file)
        newest = newest_line(file, shape=EVENT_LINE)
        self._seq = 0 if newest is None else newest["seq"]

    @classmethod
    def inherit(cls, file: Path, *, turns: Iterable[Turn]) -> "EventsSink":
        """Go on with the file of an earlier controller, which reaches it no more, and add what it wrote down last."""
        lines = list(read_lines(file, shape=EVENT_LINE))
        write_whole(file, "".join(json.dumps(line) + "\n" for line in lines))
        sink, last_t = cls(file), max((line["t"] for line in lines), default=0.0)
        for turn in turns:
            if turn.t > last_t:
                sink.saw(turn)
        return sink

    def saw(self, turn: Turn) -> None:
        quiet = isinstance(turn.event, StepCommitted | ShardsSaved | StateMoved)
        if turn.decision.reason and not (quiet and type(turn.decision.state) is type(turn.before)):
            self._add(turn, _name(turn), _facts(turn))
        for command in turn.decision.commands:
            match command:
                case WriteRepair():
                    self._add(
                        turn, "StepRepaired", {**plain(command), "actual_s": command.actual_s, "reason": command.reason}
                    )
                case WriteTransition():
                    self._add(turn, "Resized" if command.certified else "RolledBack", _resized(command))
                case Finish():
                    self._add(turn, "RunEnded", {"exit_code": command.exit_code, "steps_lost": command.steps_lost})
                    self._lines.sync()

    def close(self) -> None:
        self._lines.close()

    def _add(self, turn: Turn, event: str, facts: dict[str, Any]) -> None:
        self._seq += 1
        decision = turn.decision
        self._lines.add(
            {
                "t": turn.t,
                "seq": self._seq,
                "generation": decision.state.story.generation,
                "step": decision.state.story.committed,
                "event": event,
                "state": type(decision.state).__name__,
                "commands": [type(command).__name__ for command in decision.commands],
                "reason": decision.reason,
                **facts,
            }
        )


def _name(turn: Turn) -> str:
    """The event by its name; a notice that is heeded by what it means."""
    refused = any(isinstance(command, Answer) and not command.accepted for command in turn.decision.commands)
    is_drain = isinstance(turn.event, DrainAsked) and not refused
    return "NodeDraining" if is_drain else type(turn.event).__name__


def _resized(command: WriteTransition) -> dict[str, Any]:
    return {**plain(command), "before": str(command.before), "after": str(command.after)}


def _facts(turn: Turn) -> dict[str, Any]:
    """The event's own fields; its step and generation are the line's, its own reason is what it was told."""
    own = {key: value for key, value in plain(turn.event).items() if key not in HEAVY}
    if "reason" in own:
        own["told"] = own.pop("reason")
    return own
