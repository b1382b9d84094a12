"""What can happen to a run. An event says what is so; what to do about it is decided in `control.transitions`.

    from the cluster    NodesChanged, WorkerLost, DrainAsked
    from the workers    WorkerBorn, WorkersReady, StepCommitted, Evaluated, ShardsSaved, SaveFailed, StateMoved,
                        GenerationLeft, WorkerFailed
    from storage        CheckpointPublished, CheckpointFailed
    from people, time   what `control.wishes` has, Tick
    from the hands      ControllerTakenOver

All fields are plain values, so that a journal line holds the whole event and can be read back (`control.codec`).
`generation` says in which membership it happened; what comes from an older one has no effect (law 7).
"""

from dataclasses import dataclass, field
from typing import Literal

from raymega.control.arbitration import Decided
from raymega.control.states import NodeDevices
from raymega.control.wishes import (
    CheckpointAsked,
    DisturbAsked,
    DrainAsked,
    PauseAsked,
    ResizeAsked,
    ResumeAsked,
    RewindAsked,
    SetAsked,
    StopAsked,
)
from raymega.layout.certificate import StatePart
from raymega.layout.copies import Kept
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import WorkerId

__all__ = [
    "CheckpointAsked",
    "DisturbAsked",
    "DrainAsked",
    "PauseAsked",
    "ResizeAsked",
    "ResumeAsked",
    "RewindAsked",
    "SetAsked",
    "StopAsked",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesChanged:
    """All nodes that are alive, and the devices on each that this run may use, its own workers' included.

    Told only when the list was read: a cluster that cannot be asked is not a cluster without nodes.
    """

    nodes: tuple[NodeDevices, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBorn:
    """A process that was started is up, its libraries are loaded, and it waits for a place in a plan.

    `also`: others that are heard of at the same moment.
    """

    worker: WorkerId
    also: tuple[WorkerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReady:
    """Every worker of the plan has built its groups and holds its state."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommitted:
    """A step is committed, or skipped as not finite, everywhere. Fields as in the worker's report; times in seconds.

    `count`: steps that were alike, `step` the last of them; above one only where the brain has allowed it (`Quiet`).
    `decided`: the decision that led to it, for workers that have to apply it yet; None: not told.
    """

    generation: int
    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    skipped: bool
    step_s: float
    t: float
    seconds: dict[str, float] = field(default_factory=dict)
    loss_scale: float = 1.0
    overflow: Literal["scaled", "final"] | None = None
    reason: str = ""
    count: int = 1
    decided: Decided | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The validation loss after `after_step` committed steps, in nats per token."""

    generation: int
    after_step: int
    loss: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker's process is gone, or silent for longer than its lease: it is fenced and will not be heard again.

    Args:
        silent_s: how long ago its last sign of life was when this was noticed.
        node_gone: its node is known to be gone too.
        absent: it was not there when this controller took over; perhaps it was never started, so its node is not to
            blame.
        unsent_norm: of what its coded sums of gradients had left, which is lost with it.
        also: others that are heard of at the same moment.
    """

    worker: WorkerId
    node: str
    cause: str
    silent_s: float = 0.0
    node_gone: bool = False
    absent: bool = False
    unsent_norm: float = 0.0
    also: "tuple[WorkerLost, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLeft:
    """A worker left its generation, alive: a peer is gone, or it was told to. Nothing of it decides there any more.

    Args:
        committed: steps its state has seen; -1: it has no state that is whole.
        decided_in: the generation that decided its state; 0: it is loaded, or of first values.
        decided: its newest decision.
        work: what it has done of the step after `committed`; None: nothing that could be gone on with.
        kept: whole copies of state that it has, snapshots of its own included.
        short_of_memory: it ran out of memory in a step: where; empty: it did not.
        also: others that are heard of at the same moment.
    """

    worker: WorkerId
    generation: int
    reason: str
    committed: int
    decided_in: int = 0
    decided: Decided | None = None
    work: TeamReport | None = None
    kept: tuple[Kept, ...] = ()
    short_of_memory: str = ""
    also: "tuple[GenerationLeft, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed:
    """A worker met an error that trying again cannot mend; `exit_code` is the error's own."""

    worker: WorkerId
    generation: int
    error: str
    exit_code: int
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsSaved:
    """A worker's part of the checkpoint of `step` lies on storage; `also`: those of others, at the same moment."""

    worker: WorkerId
    generation: int
    step: int
    also: tuple[WorkerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed:
    """A worker could not write its part of the checkpoint of `step`."""

    worker: WorkerId
    generation: int
    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPublished:
    """Every shard was verified and the manifest is in place: the checkpoint exists."""

    step: int
    uri: str
    tokens_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed:
    """The checkpoint of `step` was not published; the one before stays the newest."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMoved:
    """A worker has sent and received its part of a transition, and holds the new state beside the old one.

    Args:
        part: fingerprints of what it held and of what it holds now, for the certificate.
        seconds: of its phases.
        also: others that are heard of at the same moment.
    """

    worker: WorkerId
    generation: int
    part: StatePart
    bytes_received: int
    seconds: dict[str, float] = field(default_factory=dict)
    also: "tuple[StateMoved, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTakenOver:
    """The controller before this one is gone, or refused from now on; its state is replayed, its workers are adopted.

    Args:
        epoch: of this controller.
        silent_s: since the last decision of the one before.
    """

    epoch: int
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed, nothing else."""


Event = (
    NodesChanged | WorkerBorn | WorkersReady | StepCommitted | Evaluated | WorkerLost | GenerationLeft | WorkerFailed
    | ShardsSaved | SaveFailed | CheckpointPublished | CheckpointFailed | StateMoved | StopAsked | ResizeAsked
    | DrainAsked | PauseAsked | ResumeAsked | SetAsked | CheckpointAsked | RewindAsked | DisturbAsked
    | ControllerTakenOver | Tick
)  # fmt: skip
EVENTS: tuple[type[Event], ...] = (
    NodesChanged, WorkerBorn, WorkersReady, StepCommitted, Evaluated, WorkerLost, GenerationLeft, WorkerFailed,
    ShardsSaved, SaveFailed, CheckpointPublished, CheckpointFailed, StateMoved, StopAsked, ResizeAsked, DrainAsked,
    PauseAsked, ResumeAsked, SetAsked, CheckpointAsked, RewindAsked, DisturbAsked, ControllerTakenOver,
    Tick,
)  # fmt: skip
