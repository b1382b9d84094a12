"""What a worker is told and what it tells: plain values that cross actors. No torch, no ray in here.

The controller hands out plan, batches and leave ahead of time and reads reports later: no call of a step waits for it.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from raymega.config.schema import Config
from raymega.layout.certificate import StatePart
from raymega.layout.copies import CopyRoute, Kept
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.repairs import RepairOrder
from raymega.plan.transition import Transition
from raymega.train.loss_scale import LossScale
from raymega.worker.time_sheet import Spent

Split = Literal["train", "valid"]
Rates = tuple[tuple[int, float], ...]
Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """The samples of one step for the micro-batches that one worker needs.

    Args:
        split: train, or valid (forward only).
        step: index of the step from 0; valid: of the batch in the evaluation.
        after_step: valid: the committed steps after which it is evaluated; train: equal to `step`.
        trained_tokens: unmasked targets of the whole global batch: the one divisor of the loss.
        last: valid only: this is the evaluation's last batch.
    """

    split: Split
    step: int
    after_step: int
    trained_tokens: int
    microbatches: dict[int, "MicrobatchRows"]
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchRows:
    """Rows of one micro-batch.

    Args:
        samples: [B] int64, position in the run's endless order of samples.
        ids: [B, seq_len + 1] int32; inputs are ids[:, :-1], targets ids[:, 1:].
        mask: [B, seq_len] bool, True where the target is trained; None: all are.
    """

    samples: np.ndarray
    ids: np.ndarray
    mask: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A worker's place in one generation: build these groups, hold these boxes, start after `step` committed steps.

    Args:
        generation: (controller epoch, n) as one growing integer: epoch * 1_000_000 + n.
        checkpoint: directory URI to load state from; None: first values.
        keep_state: the worker's own state is that of `step` committed steps already; do not load.
        eval_batches: full batches of one evaluation (the last padded with masked rows); `evaluate`: do one first.
        skipped: skipped steps among `step`, so that the rate goes on where it was; `scale` likewise.
        settle: facts of the decision that leads to `step`, for workers that have reduced it and not applied it.
        repair: this worker's part of finishing the step that broke; None: it begins anew.
        rates: (committed steps, `training.lr` of the steps after them), oldest first.
        links: teams that send each other logged messages beside the routes.
        move: the state comes from workers of another plan; what is held by that plan is kept until the first grant of
            this generation. A sender that has no part in `plan` serves the others.
        copies: who keeps a copy of whose state; with any, everybody keeps snapshots of its own as well.
    """

    generation: int
    plan: Plan
    step: int
    store: tuple[str, int]
    checkpoint: str | None = None
    keep_state: bool = False
    eval_batches: int = 0
    skipped: int = 0
    scale: LossScale | None = None
    settle: bytes | None = None
    repair: RepairOrder | None = None
    rates: Rates = ()
    links: tuple[tuple[Place, Place], ...] = ()
    move: Transition | None = None
    copies: tuple[CopyRoute, ...] = ()
    evaluate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One committed or skipped step, by the first living worker of the plan. Times in seconds; loss in nats a token."""

    step: int  # committed steps after it, from 1
    generation: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    skipped: bool
    step_s: float
    t: float  # unix time of the commit
    facts: bytes = b""  # the decision, for those who have not heard it
    loss_scale: float = 1.0  # in this step
    overflow: Literal["scaled", "final"] | None = None  # of a skipped step: what its loss scale makes of it
    reason: str = ""  # of a skipped step
    seconds: dict[str, float] = field(default_factory=dict)  # of this worker, by phase and wait; together step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Groups are built and the state is that of `committed` steps."""

    generation: int
    committed: int
    seconds: dict[str, float]  # build, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """This worker's part in a move of state is done; what it holds counts once the generation's first grant comes.

    `seconds`: regroup (settle, groups of the plan), build (groups of the move), fingerprint, move.
    """

    generation: int
    part: StatePart
    bytes_sent: int
    bytes_received: int
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalReport:
    """The validation loss, in nats per trained token."""

    after_step: int
    generation: int
    loss: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsSaved:
    """Its part of a checkpoint lies on storage; `files` is what the manifest needs of it."""

    step: int
    generation: int
    files: tuple[dict[str, Any], ...]
    stall_s: float
    write_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed:
    """This worker could not write its part."""

    step: int
    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A step that this worker has decided: its facts as bytes, commit and skip alike."""

    step: int  # committed steps after it
    generation: int
    facts: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBroken:
    """The worker left `generation`: a peer is gone, or it was told to abort. It keeps its process and its state.

    This is a promise: nothing of `generation` decides in it any more.

    Args:
        committed: steps its state has seen; -1: it has no state that is whole. `decided`: its newest decision.
        decided_in: the generation that decided its state; 0: it is loaded, or of first values.
        work: what it has done of the step after `committed`.
        commits: the newest steps and validations that it did in `generation`, should the one who reports them be gone.
        kept: whole copies of state that it has, snapshots of its own included.
        short_of_memory: it ran out of memory in the step: where, and what for; empty: it did not.
    """

    generation: int
    reason: str
    committed: int
    decided_in: int = 0
    decided: Decision | None = None
    work: TeamReport | None = None
    commits: tuple[StepReport | EvalReport, ...] = ()
    kept: tuple[Kept, ...] = ()
    short_of_memory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed:
    """The worker met an error that is not the world's: the run cannot go on by retrying."""

    generation: int
    error: BaseException
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosAsked:
    """The point of an order is reached that others carry out."""

    generation: int
    order: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """A stretch of one worker's step. `start_s` in unix seconds; `lane`: compute, communication, hidden, data."""

    name: str
    start_s: float
    duration_s: float
    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """What this worker did when."""

    step: int
    generation: int
    rows: tuple[TraceRow, ...]


Report = (
    Ready | Moved | StepTrace | StepReport | EvalReport | ShardsSaved | SaveFailed | GenerationBroken | WorkerFailed
    | ChaosAsked
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Answer to a heartbeat: who, where in its life, and what happened since `since`."""

    worker: WorkerId
    generation: int
    committed: int
    phase: str  # idle, building, loading, moving, waiting-batch, compute, .. as in a time sheet
    reports: tuple[tuple[int, Report], ...]  # (sequence number, report), ascending
    rss_bytes: int
    device_bytes: int
    memory_bytes: int = 0  # the most that its tensors have taken
    log_bytes: int = 0  # the most that messages of a step have held, for a repair
    copies_bytes: int = 0  # of host memory, for copies of state
    unsent_norm: float = 0.0  # of what coded sums of gradients have left
    spent: Spent = field(default_factory=Spent)


class WorkerApi(Protocol):
    """The calls of a worker (worker.worker.Worker, or the Ray actor round it). All return at once but `pulse`.

    start(assignment)                  leave any older generation, build groups, load, then run as far as granted
    feed(generation, batches)          put batches; idempotent, keyed (split, step, micro-batch)
    grant(generation, until_step, save_at, rates, full_at)  leave to run so far, as `control.commands.Grant` says
    pulse(since, wait_s)               answer when there is a report newer than `since`, or after wait_s seconds
    abort(generation, lost)            leave this and older ones: all groups break but those of teams without `lost`
    chaos(orders)                      what is to go wrong on purpose, beside what the config says
    stop()                             end the worker's threads; the process may then be ended
    """

    def start(self, assignment: Assignment) -> None: ...
    def feed(self, generation: int, batches: tuple[StepBatch, ...]) -> None: ...
    def grant(self, generation: int, until_step: int, save_at: Steps, rates: Rates, full_at: Steps) -> None: ...
    def pulse(self, since: int, wait_s: float) -> Pulse: ...
    def abort(self, generation: int, lost: tuple[WorkerId, ...]) -> object: ...
    def chaos(self, orders: tuple[str, ...]) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a worker knows from birth."""

    worker: WorkerId
    config: Config
    run_dir: str
    checkpoint_dir: str
    device: str  # "cpu" or "cuda:0"
    bind_address: str = "127.0.0.1"  # this node's own address, which the peers can reach
    log_file: str | None = None
    node: str = ""  # its id
    node_number: int = 0  # in the order in which the run came to use them
    chaos: tuple[str, ...] = ()  # orders that were given after the run began
