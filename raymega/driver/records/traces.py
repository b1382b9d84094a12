"""Gathers what the workers report of a traced step, and writes it once all have."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from raymega.driver.records.trace import write_trace
from raymega.plan.plan import Plan, WorkerId
from raymega.worker.interface import StepTrace, TraceRow


@dataclass(slots=True, kw_only=True)
class Traces:
    """Rows by (generation, step); belongs to the listener's thread, which does not write itself.

    Args:
        later: runs a job in another thread.
    """

    folder: Path
    later: Callable[[Callable[[], None]], None]
    _rows: dict[tuple[int, int], dict[WorkerId, tuple[TraceRow, ...]]] = field(default_factory=dict)

    def add(self, worker: WorkerId, report: StepTrace, *, plan: Plan) -> None:
        """Keep a worker's rows; with those of the last of `plan` the trace is written."""
        key = (report.generation, report.step)
        rows = self._rows.setdefault(key, {})
        rows[worker] = report.rows
        if set(rows) >= set(plan.living):
            del self._rows[key]
            self.later(lambda: self._write(rows, step=report.step, plan=plan))

    def _write(self, rows: dict[WorkerId, tuple[TraceRow, ...]], *, step: int, plan: Plan) -> None:
        write_trace(self.folder, rows, step=step, plan=plan)
