"""A plan that is to follow the one in force: prepared beside the run, then moved to at a boundary.

Ways           what could follow, whatever the time: every rung of the ladder as a plan
Weighed        whether another plan is due: what was asked for, how long the answer holds
Change         which plan, why, what it is predicted to cost; workers warm up, a boundary is chosen
MoveUnderway   everyone stands at the boundary; who has said what it holds now
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raymega.control.ladder import Rung
from raymega.control.story import Seat
from raymega.layout.certificate import StatePart
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.transition import Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What there is to plan with.

    Args:
        own: seats on nodes that stay: of the plan's workers, then of warm ones, then of those that are starting.
        free: what could be started.
        leaving: living teams that have a worker on a node that is to go.
        by_t: when the first of these nodes is gone.
        nodes: of all these seats; follows from them.
    """

    own: tuple[Seat, ...]
    free: tuple[Seat, ...]
    leaving: tuple[Place, ...]
    by_t: float | None
    nodes: Mapping[WorkerId, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """They are asked for by every rung, of thousands."""
        object.__setattr__(self, "nodes", {seat.worker: seat.node for seat in (*self.own, *self.free)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A rung as a plan: what the busiest worker has to receive or send for it; without a plan, what bars it."""

    rung: Rung
    plan: Plan | None = None
    num_bytes: int = 0
    barred: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Every rung, for what there is to plan with."""

    seen: Around
    rows: tuple[Way, ...]

    def plan(self, rung: Rung) -> Plan:
        """Of a rung that is open."""
        return next(way.plan for way in self.rows if way.rung is rung and way.plan is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The question whether another plan is due was answered for `facts`; it is asked again once they are others.

    Args:
        pause_s: how long the answer holds while they are the same.
        again_t: when it is asked again all the same.
        ways: that were weighed; None: none were.
    """

    facts: tuple[object, ...]
    pause_s: float
    again_t: float
    ways: Ways | None = None

    def holds(self, facts: tuple[object, ...], now: float) -> bool:
        return now < self.again_t and facts == self.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Times in seconds.

    Args:
        cause: what it is for, as half a sentence.
        predicted_s: of the pause.
        predicted_step_s: of a step after it; 0: no step was measured yet.
        since: when it was decided on.
        not_before: the boundary is not chosen before.
        ready_t: since when everyone is warm; None: not yet.
        by_t: when it has to be done; None: no limit.
        boundary: nobody has leave beyond so many steps; None: not chosen yet.
    """

    rung: Rung
    cause: str
    plan: Plan
    predicted_s: float
    predicted_step_s: float
    since: float
    not_before: float = 0.0
    ready_t: float | None = None
    by_t: float | None = None
    boundary: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveUnderway:
    """A transition that is not certified yet.

    Args:
        step: committed steps at its boundary.
        since: when all stood there.
        parts: what was told so far.
        bytes_received: by all who have told.
        busiest_bytes, move_s: received by one of them at most; seconds that one of them spent on it at most.
    """

    change: Change
    transition: Transition
    step: int
    since: float
    parts: tuple[StatePart, ...] = ()
    bytes_received: int = 0
    busiest_bytes: int = 0
    move_s: float = 0.0

    @property
    def members(self) -> tuple[WorkerId, ...]:
        return self.transition.members(self.change.plan)
