"""What is known of a step that broke: what its survivors have said, and how far it is finished."""

from dataclasses import dataclass

from raymega.control.arbitration import Decided
from raymega.layout.copies import Kept
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """A worker that left its generation alive, and what it said then: nothing of that generation decides in it.

    Args:
        committed: steps its state has seen; -1: it has no state that is whole.
        decided_in: the generation that decided its state; 0: it is loaded, or of first values.
        decided: its newest decision.
        work: what it has done of the step after `committed`; None: nothing that could be gone on with.
        kept: whole copies of state that it has, snapshots of its own included.
        short_of_memory: it ran out of memory in a step: where; empty: it did not.
    """

    worker: WorkerId
    committed: int
    decided_in: int = 0
    decided: Decided | None = None
    work: TeamReport | None = None
    kept: tuple[Kept, ...] = ()
    short_of_memory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairUnderway:
    """A step that is finished from what was left of it. Times in seconds.

    Args:
        step: it, from 1.
        missing: actions that are run to finish it.
        recomputed: those of them that may have been done before.
        detect_s: from the last sign of life of the dead to the first sign that something is wrong, at most.
        since: when that sign came.
        ready_at: when everyone had regrouped.
        predicted_s: from the last sign of life of the dead to the commit, as predicted.
    """

    step: int
    missing: int
    recomputed: int
    detect_s: float
    since: float
    ready_at: float = 0.0
    predicted_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What broke a generation: workers that are lost with the cause, workers that left with what they said.

    `silent_s`: since the last sign of life of the lost.
    """

    reason: str
    lost: tuple[tuple[WorkerId, str], ...] = ()
    left: tuple[Leaver, ...] = ()
    silent_s: float = 0.0
