"""Which states a run can be in, and what each of them knows.

    WaitingForNodes -> Starting -> Training <-> Moving        Training -> Saving -> Finished
          ^                        ^      |      |               |          ^
          |                        |      v      v               v          |
          +--- (back-off) -----  Restoring <- Settling         Stopping ----+        Failed (from anywhere)

A state is a frozen value; the arrows are the table in `control.transitions`. What outlives every state is the `Story`.
A stop that is asked for while a step is repaired or state moves waits for the next step.
"""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from raymega.control.broken import Leaver, RepairUnderway
from raymega.control.changing import Change, MoveUnderway, Weighed
from raymega.control.story import Checkpoint, NodeDevices, Seat, Stop, StopBy, Story
from raymega.metrics import GENERATIONS
from raymega.plan.plan import Plan, WorkerId

__all__ = ["GENERATIONS", "Checkpoint", "NodeDevices", "Seat", "Stop", "StopBy", "Story"]


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
        stop: it was asked for before the next step.
        keeps: everyone has the state already.
        saves_only: no step follows; what everyone has is saved last.
    """

    story: Story
    seats: tuple[Seat, ...]
    plan: Plan
    since: float
    fresh: frozenset[WorkerId]
    repair: RepairUnderway | None = None
    stop: Stop | None = None
    keeps: bool = False
    saves_only: bool = False


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
        repair: the next step is being finished from what was left of it.
        change: the next plan, which is prepared beside the run.
        weighed: the question whether another plan is due, as it was last answered.
    """

    story: Story
    seats: tuple[Seat, ...]
    plan: Plan
    granted: int
    recent_step_s: tuple[float, ...] = ()
    saves: tuple[SavesUnderway, ...] = ()
    repair: RepairUnderway | None = None
    change: Change | None = None
    weighed: Weighed | None = None


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
class Moving:
    """Everyone stands at a boundary, and the state goes over to the workers of `plan`, which counts once certified."""

    story: Story
    seats: tuple[Seat, ...]
    plan: Plan
    move: MoveUnderway
    stop: Stop | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """The generation is broken: who is lost, and what have the others committed? Decided once all is known.

    Args:
        held: every worker held the state of `story.committed` steps, or was past it, or could reach it.
        lost: workers of the plan that are gone, with the cause.
        left: workers that left the generation alive.
        detect_s: from the last sign of life of the dead to the first sign that something is wrong, at most.
        since: when the first sign came.
        until: when those who have said nothing count as lost.
        taken_over: what broke is the controller, which says nothing about the workers.
        move: it was a transition that broke; `plan` is the one before it.
        stop: it was asked for before the next step.
        step_s: of the steps before, in seconds; 0: not known.
        begins_anew: nobody has begun the next step; those who were to do so have the state before it.
        saves_only: it was the last save that broke; no step follows.
        goes_back: nothing broke: the run was asked to go back to `story.checkpoint`.
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
    detect_s: float = 0.0
    taken_over: bool = False
    move: MoveUnderway | None = None
    stop: Stop | None = None
    step_s: float = 0.0
    begins_anew: bool = False
    saves_only: bool = False
    goes_back: bool = False


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


State = WaitingForNodes | Starting | Training | Moving | Settling | Restoring | Stopping | Saving | Finished | Failed
STATES: tuple[type[State], ...] = (
    WaitingForNodes, Starting, Training, Moving, Settling, Restoring, Stopping, Saving, Finished, Failed,
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
        case Starting() | Restoring() | Training() | Settling() | Moving():
            return state.plan
        case Stopping() | Saving():
            return state.training.plan
        case WaitingForNodes() | Finished() | Failed():
            return None


def members_of(state: State) -> tuple[WorkerId, ...]:
    """Those without whom the plan in force, or the transition to it, cannot go on."""
    plan = plan_of(state)
    if isinstance(state, Moving) or (isinstance(state, Settling) and state.move is not None):
        assert state.move is not None, "a broken transition is one"
        return state.move.members
    return () if plan is None else plan.living


def with_story(state: AnyState, story: Story) -> AnyState:
    """The same state with another story."""
    if isinstance(state, Stopping | Saving):
        return replace(state, training=replace(state.training, story=story))
    return replace(state, story=story)


def seats_of(state: State) -> tuple[Seat, ...]:
    """The devices that have a worker now."""
    return () if isinstance(state, Finished | Failed) else state.seats
