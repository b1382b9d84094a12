"""Which states a run can be in, and what each of them knows.

    WaitingForNodes -> Starting -> Training -> Saving -> Finished
          ^                ^          |  ^        |
          |                |          v  |        v
          |             Restoring <- Settling   Failed (from anywhere)
          +--- (back-off) ----+       Stopping -> Saving

A state is a frozen value; the arrows are the table in `control.transitions`. What outlives every state is the `Story`.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from raymega.control.arbitration import Decided
from raymega.control.broken import Leaver, RepairUnderway
from raymega.metrics import StepRecord
from raymega.plan.plan import Plan, WorkerId

StopBy = Literal["user", "interrupt", "terminate", "client_gone", "deadline"]
GENERATIONS = 1_000_000  # of one controller


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """A node that is alive, and how many of its devices this run may use (its own workers' included)."""

    node: str
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A device and the worker that has it. A worker's id is never used again; a device is."""

    worker: WorkerId
    node: str
    device: int


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
        stop: what was asked for when a controller was lost; asked for again once steps run.
        committed: steps committed, and neither lost nor rewound since.
        furthest: the most steps ever committed; above it lies progress.
        tokens_total: trained tokens of the committed steps.
        checkpoint: the newest published one.
        recoveries: since the last progress, which is a step above `furthest` or a newer checkpoint.
        steps_lost: steps that had been committed and had to be done again.
        skipped_in_row: non-finite steps since the last finite one.
        next_worker: number of the next worker to be started.
        nodes: what the run may use.
        avoided: nodes on which a worker did not come to life; forgotten when the node leaves the list.
    """

    generation: int
    epoch: int = 0
    stop: Stop | None = None
    committed: int = 0
    furthest: int = 0
    tokens_total: int = 0
    checkpoint: Checkpoint | None = None
    recoveries: int = 0
    steps_lost: int = 0
    skipped_in_row: int = 0
    next_worker: int = 0
    nodes: tuple[NodeDevices, ...] = ()
    avoided: frozenset[str] = frozenset()

    @property
    def next_generation(self) -> int:
        """The number of the next membership: above all that this controller, or one before it, has made."""
        return max(self.generation, self.epoch * GENERATIONS) + 1

    @property
    def safe_step(self) -> int:
        """The step a run would go on from if every worker were lost now."""
        return self.checkpoint.step if self.checkpoint is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingForNodes:
    """No workers are planned yet, or the next attempt waits for its back-off (`not_before`) to pass."""

    story: Story
    seats: tuple[Seat, ...] = ()
    not_before: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """Workers of the first plan start, build their groups and load `story.checkpoint` or their first values."""

    story: Story
    seats: tuple[Seat, ...]
    plan: Plan
    since: float
    fresh: frozenset[WorkerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """A generation was lost; survivors and `fresh` workers build the next one and go on from `story.committed`.

    Args:
        repair: the step that is being finished; None: the state is loaded, or the step begins anew.
        decided: the decision that some apply first, in a repair.
    """

    story: Story
    seats: tuple[Seat, ...]
    plan: Plan
    since: float
    fresh: frozenset[WorkerId]
    repair: RepairUnderway | None = None
    decided: Decided | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavesUnderway:
    """A checkpoint that workers have leave to write, and whose parts lie on storage already.

    `since` and `tokens_total` are None until the step's commit was heard of: a worker may save before rank 0 reports.
    `publishing`: all parts are there and the manifest was asked for.
    """

    step: int
    since: float | None = None
    saved: frozenset[WorkerId] = frozenset()
    tokens_total: int | None = None
    publishing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps run. `granted`: workers may run until so many steps are committed, without asking.

    Args:
        recent_step_s: seconds of the newest steps, oldest first.
        saves: checkpoints that are being written.
        unwritten: the newest step's record, held back until its validation loss is known.
        validated: (steps, loss) of a validation that was heard of before the commit of its step.
        repair: the next step is being finished from what was left of it.
    """

    story: Story
    seats: tuple[Seat, ...]
    plan: Plan
    granted: int
    recent_step_s: tuple[float, ...] = ()
    saves: tuple[SavesUnderway, ...] = ()
    unwritten: StepRecord | None = None
    validated: tuple[int, float] | None = None
    repair: RepairUnderway | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """A stop was asked for: all workers run until `training.granted` steps, which is a boundary they share."""

    training: Training
    stop: Stop

    @property
    def story(self) -> Story:
        return self.training.story

    @property
    def seats(self) -> tuple[Seat, ...]:
        return self.training.seats


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """No step is left to do; the last checkpoint is underway. `stop`: why it is before the run's last step."""

    training: Training
    stop: Stop | None
    since: float

    @property
    def story(self) -> Story:
        return self.training.story

    @property
    def seats(self) -> tuple[Seat, ...]:
        return self.training.seats


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """The generation is broken: who is lost, and what have the others committed? Decided once all is known.

    Args:
        held: every worker held the state of `story.committed` steps, or was past it, or could reach it.
        lost: workers of the plan that are gone, with the cause.
        left: workers that left the generation alive.
        heard: the newest decision that was heard of.
        detect_s: from the last sign of life of the dead to the first sign that something is wrong, at most.
        since: when the first sign came.
        until: when those who have said nothing count as lost.
        taken_over: what broke is the controller, which says nothing about the workers.
    """

    story: Story
    seats: tuple[Seat, ...]
    plan: Plan
    held: bool
    lost: tuple[tuple[WorkerId, str], ...]
    left: tuple[Leaver, ...]
    saves: tuple[SavesUnderway, ...]
    since: float
    until: float
    heard: Decided | None = None
    detect_s: float = 0.0
    taken_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Over, as asked for; `exit_code` 0 only if the steps asked for were committed."""

    story: Story
    exit_code: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Over, not as asked for. `details`: the traceback where there is one."""

    story: Story
    exit_code: int
    reason: str
    details: str = field(default="", repr=False)


State = WaitingForNodes | Starting | Training | Settling | Restoring | Stopping | Saving | Finished | Failed
STATES: tuple[type[State], ...] = (
    WaitingForNodes, Starting, Training, Settling, Restoring, Stopping, Saving, Finished, Failed,
)  # fmt: skip
Over = Finished | Failed
AnyState = TypeVar("AnyState", bound=State)


def first_state(*, epoch: int, checkpoint: Checkpoint | None = None) -> WaitingForNodes:
    """Where a controller begins. `epoch` is above that of any controller before it; it goes on from `checkpoint`."""
    step, tokens = (checkpoint.step, checkpoint.tokens_total) if checkpoint is not None else (0, 0)
    story = Story(
        generation=epoch * GENERATIONS, epoch=epoch, committed=step, furthest=step, tokens_total=tokens,
        checkpoint=checkpoint,
    )  # fmt: skip
    return WaitingForNodes(story=story)


def plan_of(state: State) -> Plan | None:
    """The plan in force, if any."""
    match state:
        case Starting() | Restoring() | Training() | Settling():
            return state.plan
        case Stopping() | Saving():
            return state.training.plan
        case WaitingForNodes() | Finished() | Failed():
            return None


def with_story(state: AnyState, story: Story) -> AnyState:
    """The same state with another story."""
    if isinstance(state, Stopping | Saving):
        return replace(state, training=replace(state.training, story=story))
    return replace(state, story=story)


def seats_of(state: State) -> tuple[Seat, ...]:
    """The devices that have a worker now."""
    return () if isinstance(state, Finished | Failed) else state.seats
