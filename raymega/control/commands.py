"""What the brain tells its hands to do. Hands carry it out and report events; they decide nothing.

    workers     StartWorkers, StopWorkers, AssignPlan, AbortGeneration
    steps       FeedFrom, Grant, Evaluate
    state       PublishCheckpoint, WithdrawCheckpoints
    faults      Disturb
    records     WriteStep, Rewind, WriteRepair, WriteTransition   (for the sinks)
    people      Answer
    the end     Finish

Every command is idempotent: carried out twice it does what it does once. None of them blocks the loop; what takes
time is answered by an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raymega.config.fault import counted, were
from raymega.control.arbitration import Decided
from raymega.control.course import Rates
from raymega.control.states import Checkpoint, Seat
from raymega.layout.copies import CopyRoute
from raymega.mesh import Mesh
from raymega.metrics import StepRecord
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.repairs import RepairOrder
from raymega.plan.transition import Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkers:
    """Start a process for each seat. One that does not come to life is answered by `WorkerLost`."""

    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorkers:
    """End these workers for good; those that are gone already are fenced all the same."""

    workers: tuple[WorkerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPlan:
    """Give every worker of `plan` its place in `generation`, once it is up; answered by `WorkersReady`.

    With `move` the senders of the transition have a part too, and each worker answers with `StateMoved`; the first
    grant of the generation says that the new state counts, and ends the old one.

    Args:
        step: committed steps to go on from.
        checkpoint: what to load; None: first values.
        keep_state: every worker's own state is that of `step`, or becomes it by `settle`; nothing is loaded.
        settle: the decision that leads to `step`, where it is known, for those who have not applied it.
        repair: each worker's part of finishing the step that broke; without it, the step begins anew.
        rates: of learning, as `Course` has them.
        links: teams that have messages for each other beside those of the routes.
        move: the state of `step` comes from the workers of another plan; nothing is loaded.
        copies: who keeps a copy of whose state from then on.
        evaluate: the validation after `step` is taken before the next step: it was cut off.
    """

    generation: int
    plan: Plan
    step: int
    checkpoint: Checkpoint | None
    keep_state: bool = False
    settle: Decided | None = None
    repair: Mapping[WorkerId, RepairOrder] = field(default_factory=dict)
    rates: Rates = ()
    links: tuple[tuple[Place, Place], ...] = ()
    move: Transition | None = None
    copies: tuple[CopyRoute, ...] = ()
    evaluate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortGeneration:
    """Wake every worker of `generation` out of whatever it waits for; each answers with `GenerationLeft`.

    For one that has not got its place in `generation` yet, and now never will, the hands answer (`committed` -1).
    `lost`: those that nobody is to wait for.
    """

    generation: int
    reason: str
    lost: tuple[WorkerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFrom:
    """Send batches ahead for the steps from index `step` on (the first step has index 0), by the newest plan."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Up to `step`, and before `t`, nothing is decided about steps but leave, as long as nothing else happens."""

    step: int
    t: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Leave for all workers to run until `until` steps are committed; snapshot right after those in `save_at`.

    Nobody has begun any of these steps, so what is said of them holds for all workers alike.

    Args:
        rates: of learning, as `Course` has them.
        full_at: steps whose gradients are summed in full, with all that coded sums have left; those of `save_at` too.
        quiet: until anything else is told of, hands may run so far without more leave, and tell of it in one event.
    """

    generation: int
    until: int
    save_at: tuple[int, ...] = ()
    rates: Rates = ()
    full_at: tuple[int, ...] = ()
    quiet: Quiet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Feed the validation split, to be evaluated once `after_step` steps are committed."""

    generation: int
    after_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCheckpoint:
    """Verify what `workers` saved for `step` in `generation` and publish the manifest, with `tokens_total` in it.

    Once a newer generation was assigned nothing of this one may be published any more (law 7): `CheckpointFailed`.
    """

    step: int
    generation: int
    workers: tuple[WorkerId, ...]
    tokens_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawCheckpoints:
    """Checkpoints later than `after_step` are of steps that are void: nobody goes on from them any more."""

    after_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturb:
    """Have things go wrong on purpose: workers that are there and workers to come know the orders from now on.

    Args:
        without: (number of a node, devices of it), the last ones, that the run does without; None: as before.
    """

    orders: tuple[str, ...] = ()
    without: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStep:
    """Add a committed step to the metrics."""

    record: StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """Steps above `step` are void: the metrics end there, until they are written again."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRepair:
    """A step that broke is committed without a step rewound. Times in seconds, one after the other.

    Args:
        missing: actions that were run to finish it.
        recomputed: those of them that may have been done before.
        detect_s: from the last sign of life of the dead to the first sign of trouble, at most.
        regroup_s: from there until everyone was in place.
        repair_s: from there to the commit.
        predicted_s: of all three together, when the repair began.
    """

    step: int
    missing: int
    recomputed: int
    detect_s: float
    regroup_s: float
    repair_s: float
    predicted_s: float = 0.0

    @property
    def actual_s(self) -> float:
        """From the last sign of life of the dead to the commit."""
        return self.detect_s + self.regroup_s + self.repair_s

    @property
    def reason(self) -> str:
        """The sentence for people."""
        again = f"{counted(self.missing, noun='action')} {were(self.missing)} left to do, "
        again += f"{self.recomputed} of them perhaps a second time"
        return f"step {self.step} is repaired {self.actual_s:.2f} s after the last sign of life of the lost; {again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTransition:
    """The run goes on as another plan, or, not `certified`, it was rolled back and goes on as it was.

    Args:
        cause: what it was for, as half a sentence: `n1 will be gone`.
        step: committed steps at its boundary.
        before, after: the meshes.
        bytes_moved: that travelled between workers.
        prepare_s: from the cause until everyone stood at the boundary; training went on in the meantime.
        predicted_s: of the pause.
        actual_s: the pause, from the commit of `step` until leave was given again.
        predicted_step_s: of a step after it; 0: nothing is known to predict from.
        reason: the sentence for people.
    """

    cause: str
    certified: bool
    step: int
    before: Mesh
    after: Mesh
    bytes_moved: int
    prepare_s: float
    predicted_s: float
    actual_s: float
    predicted_step_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What becomes of something that was asked for; where it is refused, the run goes on as it is.

    Args:
        soon: refused at this moment only, whoever asks again is likely to get it.
    """

    request: int
    accepted: bool
    reason: str
    soon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over: end all that belongs to it. `resume_step`: where it can go on; None: nothing is left to do."""

    exit_code: int
    reason: str
    steps_lost: int
    resume_step: int | None


Command = (
    StartWorkers | StopWorkers | AssignPlan | AbortGeneration | FeedFrom | Grant | Evaluate
    | PublishCheckpoint | WithdrawCheckpoints | Disturb | WriteStep | Rewind | WriteRepair | WriteTransition | Answer
    | Finish
)  # fmt: skip
