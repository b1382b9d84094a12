"""The planner lays out what the config says; a run that has found its micro-batches too large cuts them."""

from dataclasses import dataclass

from raymega.control.decision import Planned
from raymega.plan.finer import finer
from raymega.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A plan of the planner's with smaller micro-batches."""

    plan: Plan
    reason: str


def fitting(planned: Planned, *, most_samples: int | None) -> Planned:
    """`planned`, in micro-batches of `most_samples` at most; None: of any size."""
    if most_samples is None or planned.plan.microbatch_size <= most_samples:
        return planned
    return Fitting(plan=finer(planned.plan, microbatch_size=most_samples), reason=planned.reason)
