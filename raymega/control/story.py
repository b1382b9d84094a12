"""What outlives every state of a run: how far it is, what it may use, and what bears on its next plan.

Story      committed steps, the newest checkpoint, nodes, workers' numbers
  Outlook  wishes, drains, nodes that came lately, what a change costs         (`control.outlook`)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from raymega.control.arbitration import Decided
from raymega.control.course import Course
from raymega.control.outlook import Outlook
from raymega.metrics import GENERATIONS, StepRecord
from raymega.plan.plan import WorkerId

StopBy = Literal["user", "interrupt", "terminate", "hangup", "client_gone", "deadline"]
RECENT_TOKENS = 512  # steps, and so the most between two copies of state


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """A node that is alive, how many of its devices this run may use (its own workers' included), where it stands.

    Args:
        labels: (name, value) of those that say what it may fail together with.
        usable_bytes: of memory on each device; None: not known.
    """

    node: str
    devices: int
    labels: tuple[tuple[str, str], ...] = ()
    usable_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A device and the worker that has it. A worker's id is never used again; a device is.

    `usable_bytes`: of its memory; None: not known.
    """

    worker: WorkerId
    node: str
    device: int
    usable_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete, published checkpoint; `uri` is its directory, `tokens_total` what was trained up to it."""

    step: int
    uri: str
    tokens_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Someone asked the run to end before its last step. `by_t`: when it has to be over; None: no limit."""

    by: StopBy
    reason: str
    by_t: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What outlives every state.

    Args:
        generation: the newest membership; (controller epoch, n) as one growing integer.
        epoch: of the controller that decides now. It may have taken over a generation of an older one.
        committed: steps committed, and neither lost nor rewound since.
        furthest: the most steps ever committed; above it lies progress.
        tokens_total: trained tokens of the committed steps.
        recent_tokens: of the newest of these steps, oldest first.
        checkpoint: the newest published one.
        recoveries: since the last progress, which is a step above `furthest` or a newer checkpoint; those that lost
            no step are forgotten with the next step that is committed.
        rewinds: recoveries since the last progress that lost steps.
        steps_lost: steps that had been committed and had to be done again.
        skipped_in_row: non-finite steps since the last finite one.
        next_worker: number of the next worker to be started.
        nodes: what the run may use.
        avoided: nodes on which a worker did not come to life; forgotten when the node leaves the list.
        course: what people have asked of its course.
        outlook: what bears on the next plan.
        unwritten: the newest step's record, held back until its validation loss is known (`control.validating`).
        validated: (steps, loss) of a validation that was heard of before the commit of its step.
        decided: the decision that led to `committed`, where it is known: who has it not can be told.
    """

    generation: int
    epoch: int = 0
    committed: int = 0
    furthest: int = 0
    tokens_total: int = 0
    recent_tokens: tuple[int, ...] = ()
    checkpoint: Checkpoint | None = None
    recoveries: int = 0
    rewinds: int = 0
    steps_lost: int = 0
    skipped_in_row: int = 0
    next_worker: int = 0
    nodes: tuple[NodeDevices, ...] = ()
    avoided: frozenset[str] = frozenset()
    course: Course = field(default_factory=Course)
    outlook: Outlook = field(default_factory=Outlook)
    unwritten: StepRecord | None = None
    validated: tuple[int, float] | None = None
    decided: Decided | None = None

    def back_at(self, step: int) -> "Story":
        """The story when `step` steps were committed, which is not long ago."""
        again = self.committed - step
        return replace(
            self,
            committed=step,
            tokens_total=self.tokens_total - sum(self.recent_tokens[-again:]),
            recent_tokens=self.recent_tokens[:-again],
            skipped_in_row=0,
            unwritten=None,
            decided=None,
        )

    def back_to(self, checkpoint: Checkpoint | None) -> "Story":
        """The story at `checkpoint`; None: at the first values."""
        step, tokens = (0, 0) if checkpoint is None else (checkpoint.step, checkpoint.tokens_total)
        return replace(
            self, committed=step, tokens_total=tokens, recent_tokens=(), skipped_in_row=0, unwritten=None, decided=None
        )

    def owing(self, saves: Iterable[int]) -> "Story":
        """The story where checkpoints of these steps were broken: the next step is saved in their place."""
        if not any(self.safe_step < step <= self.committed for step in saves):
            return self
        return replace(self, course=self.course.with_save(self.committed + 1, safe_step=self.safe_step))

    @property
    def next_generation(self) -> int:
        """The number of the next membership: above all that this controller, or one before it, has made."""
        return max(self.generation, self.epoch * GENERATIONS) + 1

    @property
    def safe_step(self) -> int:
        """The step a run would go on from if every worker were lost now."""
        return self.checkpoint.step if self.checkpoint is not None else 0
