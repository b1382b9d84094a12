"""Keeps `metrics.jsonl`: one line a committed step, each step once, in order."""

from collections.abc import Iterable
from pathlib import Path

from raymega.control.commands import Rewind, WriteStep
from raymega.control.loop import Turn
from raymega.driver.records.json_lines import LineWriter, cut_lines
from raymega.driver.records.line_shapes import STEP_LINE
from raymega.driver.records.progress import records_of
from raymega.driver.records.steps import newest_step


class MetricsSink:
    """A watcher of the loop: writes steps, and ends the file at the step to which a run goes back.

    Args:
        step: the step that the run goes on from; what lies beyond in the file is void.
    """

    def __init__(self, file: Path, *, step: int) -> None:
        self._file, self._step = file, step
        self._lines = LineWriter(file)
        self._rewind(step)

    def catch_up(self, turns: Iterable[Turn]) -> None:
        """Add the steps of earlier turns that the controller before this one wrote down, and not here."""
        newest = newest_step(self._file)
        last = 0 if newest is None else newest["step"]
        records = {record.step: record for turn in turns for record in records_of(turn)}
        for step in range(last + 1, self._step + 1):
            if step in records:
                self._lines.add(records[step].to_json())

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
        cut_lines(self._file, key="step", last=step, shape=STEP_LINE)
        self._lines = LineWriter(self._file)
