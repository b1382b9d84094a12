"""Writes the figures of each step as TensorBoard files; look at them with `tensorboard --logdir RUNDIR/tensorboard`."""

import time
from pathlib import Path

from tensorboardX import SummaryWriter

from raymega.control.commands import Rewind
from raymega.control.loop import Turn
from raymega.driver.records.progress import Progress, figures_of, records_of


class TensorBoardSink:
    """A watcher of the loop. Steps to which the run goes back are purged, so that each stands once.

    Args:
        step: the step that the run goes on from.
    """

    def __init__(self, folder: Path, *, step: int, t: float) -> None:
        self._folder, self._progress = folder, Progress.begin(t)
        self._writer = self._open(step)

    def saw(self, turn: Turn) -> None:
        self._progress = self._progress.after(turn)
        for command in turn.decision.commands:
            if isinstance(command, Rewind):
                self._writer.close()
                self._writer = self._open(command.step)
        for record in records_of(turn):
            for name, value in figures_of(record, self._progress).items():
                self._writer.add_scalar(name, value, global_step=record.step, walltime=record.t)

    def tick(self) -> None:
        """Nothing to do: what is written stays."""

    def close(self) -> None:
        self._writer.close()

    def _open(self, step: int) -> SummaryWriter:
        own = f".{time.time_ns()}"  # its names go by the second; two writers of one second would share a file
        return SummaryWriter(str(self._folder), purge_step=step + 1, filename_suffix=own)
