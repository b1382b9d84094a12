"""What people, and the cluster in their place, can ask of a live run. What becomes of it is one `Answer`.

    its end       StopAsked
    its size      ResizeAsked, DrainAsked                                        `control.asking`
    its course    PauseAsked, ResumeAsked, SetAsked, CheckpointAsked             `control.steering`
    its past      RewindAsked                                                    `control.going_back`
    its luck      DisturbAsked                                                   `control.steering`

They are events like all others (`control.events`).
"""

from dataclasses import dataclass

from raymega.control.story import Checkpoint, StopBy
from raymega.mesh import Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """End the run at a boundary that all workers share. `grace_s`: it has to be over by then; None: no limit."""

    by: StopBy
    grace_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeAsked:
    """Go on with so many devices, or as this mesh, from a boundary on; answered by one `Answer`.

    Args:
        request: whom to answer; None: the calendar, or a run that goes first, says so and waits for no answer. Then
            `devices` are the most there may be, also where fewer are there.
        cause: who says so, in words; empty: a person.
    """

    request: int | None
    devices: int | None = None
    mesh: Mesh | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAsked:
    """A node will be gone at `by_t` (unix seconds): be off it by then.

    Args:
        request: whom to answer; None: a notice by the cluster, which waits for no answer.
        cause: who says so, in words.
    """

    request: int | None
    node: str
    by_t: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAsked:
    """Stand at the next boundary that all workers share, or after `after_step` steps, until told to go on."""

    request: int
    after_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAsked:
    """Go on. `steps`: and pause again after so many; None: without a pause."""

    request: int
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAsked:
    """Train with `lr` in the place of `training.lr` from the next boundary on; the schedule scales it as before."""

    request: int
    lr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAsked:
    """Save the first step that nobody has begun."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindAsked:
    """Go back to a checkpoint that is kept, and train on from there; what came after it is void.

    Args:
        newest: the step of the newest checkpoint when this one was seen to be there.
    """

    request: int
    to: Checkpoint
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbAsked:
    """Have things go wrong on purpose, each order at the point that it names (`config.chaos`).

    Args:
        without: (number of a node, devices of it) that the run does without from now on, whoever sits there dies; it
            has all others back. None: as before.
    """

    request: int
    orders: tuple[str, ...] = ()
    without: tuple[tuple[int, int], ...] | None = None
