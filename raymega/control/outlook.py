"""What bears on the next plan: what people wish, which nodes are to go or came lately, what a change costs.

    n0 ---------------------------------   there from the first: used at once
    n1       +--------------------------   came: used once it has been there for elastic.steady_s
    n2   +--+   +---+     +-------------   came and went: each time twice as long, up to 64 times
    n3 ----------- drain ------+           not used from the notice on; back it comes as any other

A cluster that changes often has a short horizon, so that less is worth a move (`mean_s`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from raymega.config.fault import counted
from raymega.control.prices import Prices
from raymega.mesh import Mesh
from raymega.plan.plan import WorkerId

MEAN_S = 600.0  # a guess before anything has happened: one change in ten minutes
ONE_CHANGE_S = 5.0  # a guess: what comes and goes within so long, as the workers of a node, is one change
MOST_DOUBLINGS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked for beside the config: so many devices at most, or a mesh; neither: as the config says.

    `pending`: the plan in force is not of it yet.
    """

    devices: int | None = None
    mesh: Mesh | None = None
    pending: bool = False

    def __str__(self) -> str:
        return counted(self.devices or 0, noun="device") if self.mesh is None else str(self.mesh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A node that will be gone at `by_t`."""

    node: str
    by_t: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What outlives every state and bears on the next plan.

    Args:
        saved_for: of the nodes that are to go, those for whose loss a checkpoint was ordered.
        came: (node, when) of those that were not there from the first.
        flaps: times that one of those has gone again.
        unborn: (worker, when it was started) of processes that are not up yet.
        since: when the run began; None: it has not.
        changes: times that nodes or workers came or went since.
        changed_t: when they last did.
        hold_until: after a transition that was rolled back, none is begun before.
        rollbacks: since the last transition that was certified.
        most_samples: in a micro-batch, since a device ran out of memory with more; None: as the config says.
    """

    wish: Wish = field(default_factory=Wish)
    draining: tuple[Drain, ...] = ()
    saved_for: frozenset[str] = frozenset()
    came: tuple[tuple[str, float], ...] = ()
    flaps: int = 0
    unborn: tuple[tuple[WorkerId, float], ...] = ()
    prices: Prices = field(default_factory=Prices)
    since: float | None = None
    changes: int = 0
    changed_t: float = float("-inf")
    hold_until: float = 0.0
    rollbacks: int = 0
    most_samples: int | None = None

    @property
    def leaving(self) -> frozenset[str]:
        """Nodes that are not to be used any more."""
        return frozenset(drain.node for drain in self.draining)

    def is_born(self, worker: WorkerId) -> bool:
        return worker not in dict(self.unborn)

    def mean_s(self, now: float) -> float:
        """Seconds between two changes of the cluster, as far as can be told."""
        passed_s = 0.0 if self.since is None else now - self.since
        return (MEAN_S + passed_s) / (1 + self.changes)

    def steady_t(self, node: str, *, steady_s: float) -> float:
        """From when on `node` may be grown onto."""
        came_t = next((at_t for name, at_t in self.came if name == node), None)
        return 0.0 if came_t is None else came_t + steady_s * 2 ** min(self.flaps, MOST_DOUBLINGS)

    def with_nodes(self, known: Iterable[str], nodes: Iterable[str], now: float) -> "Outlook":
        """`nodes` are there now, `known` were."""
        before, here = set(known), set(nodes)
        if not before:
            return replace(self, since=now if self.since is None else self.since)
        gone, fresh = before - here, sorted(here - before)
        came = tuple(row for row in self.came if row[0] in here)
        known_too = replace(
            self,
            came=(*came, *((node, now) for node in fresh)),
            flaps=self.flaps + len(gone & set(dict(self.came))),
            draining=tuple(drain for drain in self.draining if drain.node in here),
            saved_for=self.saved_for & here,
        )
        return known_too._changed(now) if gone or fresh else known_too

    def with_drain(self, drain: Drain) -> "Outlook":
        """A node is to go; of two notices for it the earlier time counts."""
        others = tuple(one for one in self.draining if one.node != drain.node)
        by_t = min([drain.by_t, *(one.by_t for one in self.draining if one.node == drain.node)])
        return replace(self, draining=(*others, replace(drain, by_t=by_t)))

    def with_started(self, workers: Iterable[WorkerId], now: float) -> "Outlook":
        return replace(self, unborn=(*self.unborn, *((worker, now) for worker in workers)))

    def with_born(self, workers: Iterable[WorkerId], now: float | None = None) -> "Outlook":
        """These are up; `now` where it is heard of at once, and so tells what a start takes."""
        if not self.unborn:
            return self
        names, known = set(workers), dict(self.unborn)
        prices = self.prices
        if now is not None:
            for worker in sorted(names & set(known)):
                prices = prices.started(now - known[worker])
        return replace(self, prices=prices, unborn=tuple(row for row in self.unborn if row[0] not in names))

    def without(self, workers: Iterable[WorkerId], now: float) -> "Outlook":
        """These workers are gone."""
        return self.with_born(workers)._changed(now)

    def _changed(self, now: float) -> "Outlook":
        again = now - self.changed_t <= ONE_CHANGE_S
        return self if again else replace(self, changes=self.changes + 1, changed_t=now)
