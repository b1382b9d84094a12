"""What a worker says of a step that it has done, or a part of."""

import time
from collections.abc import Iterable

from raymega.comm.frames import Message
from raymega.pipeline.actions import Action, Kind
from raymega.pipeline.missing import TeamReport
from raymega.train.step_facts import Commit, Skip
from raymega.worker.interface import StepReport
from raymega.worker.state import TrainState
from raymega.worker.step import Done
from raymega.worker.step_work import StepWork


def report_of(done: Done, *, state: TrainState, generation: int, step_s: float) -> StepReport:
    """The report of the step that brought `state` to where it is."""
    ruling = done.ruling
    reason = ruling.reason if isinstance(ruling, Skip) else ""
    if state.overdue_norm:
        reason += f"; what coded sums have left, of norm {state.overdue_norm:.3g}, is in no checkpoint or move of now"
    return StepReport(
        step=state.committed,
        generation=generation,
        loss=ruling.loss,
        grad_norm=ruling.grad_norm,
        lr=ruling.lr if isinstance(ruling, Commit) else 0.0,
        tokens=ruling.tokens,
        skipped=isinstance(ruling, Skip),
        step_s=step_s,
        t=time.time(),
        facts=done.facts,
        loss_scale=done.loss_scale,
        overflow=ruling.overflow if isinstance(ruling, Skip) else None,
        reason=reason,
        seconds=done.seconds,
    )


def team_report(work: StepWork | None, *, stages: tuple[int, ...], messages: Iterable[Message]) -> TeamReport:
    """What is done of a step that broke, for its repair.

    Args:
        work: None: nothing that could be gone on with.
        messages: all that the boundary log holds.
    """
    if work is None:
        return TeamReport(stages=stages)
    logged = (m for m in messages if m.step == work.ledger.step)
    return TeamReport(
        stages=stages,
        done=frozenset(work.ledger.facts),
        logged=frozenset(Action(m.chunk, Kind(m.direction), m.microbatch) for m in logged),
        spoiled=work.adding,
    )
