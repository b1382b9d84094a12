"""Keeps `metrics.jsonl`: one line a committed step, each step once, in order."""

from pathlib import Path

from raymega.control.commands import Rewind, WriteStep
from raymega.control.loop import Turn
from raymega.driver.json_lines import LineWriter, cut_lines


class MetricsSink:
    """A watcher of the loop: writes steps, and ends the file at the step to which a run goes back.

    Args:
        step: the step that the run goes on from; what lies beyond in the file is void.
    """

    def __init__(self, file: Path, *, step: int) -> None:
        self._file = file
        self._lines = LineWriter(file)
        self._rewind(step)

    def saw(self, turn: Turn) -> None:
        for command in turn.decision.commands:
            match command:
                case WriteStep():
                    self._lines.add(command.record.to_json())
                case Rewind():
                    self._rewind(command.step)

    def close(self) -> None:
        self._lines.close()

    def _rewind(self, step: int) -> None:
        self._lines.close()
        cut_lines(self._file, key="step", last=step)
        self._lines = LineWriter(self._file)
