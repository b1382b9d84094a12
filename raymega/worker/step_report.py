"""What a worker says of a step that it has done."""

import time

from raymega.train.step_facts import Commit, Skip
from raymega.worker.interface import StepReport
from raymega.worker.step import Done


def report_of(done: Done, *, committed: int, generation: int, step_s: float, seconds: dict[str, float]) -> StepReport:
    """The report of the step that brought the state to `committed`."""
    ruling = done.ruling
    return StepReport(
        step=committed,
        generation=generation,
        loss=ruling.loss,
        grad_norm=ruling.grad_norm,
        lr=ruling.lr if isinstance(ruling, Commit) else 0.0,
        tokens=ruling.tokens,
        skipped=isinstance(ruling, Skip),
        step_s=step_s,
        t=time.time(),
        facts=done.facts,
        seconds=seconds,
    )
