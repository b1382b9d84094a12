"""What a worker reports, as the events that the brain decides on."""

import traceback

from raymega.control.arbitration import Decided, Version
from raymega.control.events import (
    Evaluated,
    Event,
    GenerationLeft,
    SaveFailed,
    ShardsSaved,
    StateMoved,
    StepCommitted,
    WorkerFailed,
)
from raymega.errors import RaymegaError
from raymega.plan.plan import WorkerId
from raymega.worker import interface as told

Told = (
    told.StepReport | told.EvalReport | told.ShardsSaved | told.SaveFailed | told.Moved | told.GenerationBroken
    | told.WorkerFailed
)  # fmt: skip


def event_of(worker: WorkerId, report: Told) -> Event:
    """The event that `report` of `worker` is. (`Ready` is none: it counts only once all workers are.)"""
    match report:
        case told.StepReport():
            return _committed(report)
        case told.EvalReport():
            return Evaluated(
                generation=report.generation, after_step=report.after_step, loss=report.loss, tokens=report.tokens
            )
        case told.ShardsSaved():
            return ShardsSaved(worker=worker, generation=report.generation, step=report.step)
        case told.SaveFailed():
            return SaveFailed(worker=worker, generation=report.generation, step=report.step, reason=report.reason)
        case told.Moved():
            return _moved(worker, report)
        case told.GenerationBroken():
            return _left(worker, report)
        case told.WorkerFailed():
            return failed(worker, report.error, generation=report.generation, trace=report.traceback)


def _moved(worker: WorkerId, report: told.Moved) -> StateMoved:
    return StateMoved(
        worker=worker,
        generation=report.generation,
        part=report.part,
        bytes_received=report.bytes_received,
        seconds=report.seconds,
    )


def _left(worker: WorkerId, report: told.GenerationBroken) -> GenerationLeft:
    decided = report.decided
    return GenerationLeft(
        worker=worker,
        generation=report.generation,
        reason=report.reason,
        committed=report.committed,
        decided_in=report.decided_in,
        decided=None
        if decided is None
        else Decided(version=Version(step=decided.step, generation=decided.generation), facts=decided.facts),
        work=report.work,
        kept=report.kept,
        short_of_memory=report.short_of_memory,
    )


def _committed(report: told.StepReport) -> StepCommitted:
    return StepCommitted(
        generation=report.generation,
        step=report.step,
        loss=report.loss,
        grad_norm=report.grad_norm,
        lr=report.lr,
        tokens=report.tokens,
        skipped=report.skipped,
        step_s=report.step_s,
        t=report.t,
        seconds=report.seconds,
        loss_scale=report.loss_scale,
        overflow=report.overflow,
        reason=report.reason,
        decided=Decided(version=Version(step=report.step, generation=report.generation), facts=report.facts),
    )


def failed(worker: WorkerId, error: BaseException, *, generation: int, trace: str = "") -> WorkerFailed:
    """An error that trying again cannot mend, with the exit code that belongs to it."""
    raised = isinstance(error, RaymegaError)
    return WorkerFailed(
        worker=worker,
        generation=generation,
        error=str(error) if raised else f"{type(error).__name__}: {error}",
        exit_code=error.exit_code if isinstance(error, RaymegaError) else 1,
        traceback=trace or "".join(traceback.format_exception(error)),
    )
