"""Who keeps a copy of whose state, so that the loss of any `tolerate` nodes at once leaves every box somewhere? Pure.

    dp=1 pp=2 on n0 n1        w0 (n0, stage 0) -> w1      w1 (n1, stage 1) -> w0
    dp=2 on n0 n1             either node may go, and the other replica holds all: no copy
    dp=2, a team is lost      its peer is the last holder, and is copied
    all on one node           to another worker: it outlives a process, not the node, and the reason says so

A copy lies on another node; among those on one that is not spot, then in another zone, then with the worker that keeps
least. Source: buddy copies in memory, as in Gemini (Wang et al., SOSP 2023), where only what has no replica is copied.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from raymega.config.fault import counted, have
from raymega.layout.param_layout import holdings
from raymega.layout.param_spec import ParamSpec
from raymega.plan.cluster import ZONE_LABEL, is_spot
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.shards import holders_of_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a worker is: its node, and that node's labels."""

    node: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRoute:
    """`holder` keeps a copy of what `owner` holds."""

    owner: WorkerId
    holder: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A whole copy of what `owner` held after `step` steps, as decided in `generation`; its own, or another's."""

    owner: WorkerId
    step: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Who keeps whose state; `elements`: of one kind, that each holder keeps."""

    routes: tuple[CopyRoute, ...]
    elements: Mapping[WorkerId, int]
    reason: str


def keepers(plan: Plan, *, specs: Iterable[ParamSpec], homes: Mapping[WorkerId, Home], tolerate: int) -> Keeping:
    """Choose holders for all boxes whose replicas lie on `tolerate` nodes or fewer.

    Args:
        specs: every parameter of the model.
        homes: of every living worker of the plan.
        tolerate: nodes whose loss at once the state outlives.
    """
    held = holdings(specs, plan)
    sizes = {plan.workers[rank]: sum(one.box.num_elements for one in held[rank]) for rank in range(plan.mesh.size)}
    shelves = _Shelves(plan=plan, homes=homes)
    rings = sorted(_rings(plan), key=lambda ring: (-sizes[ring[0]], plan.workers.index(ring[0])))
    routes = [
        CopyRoute(owner=ring[0], holder=holder)
        for ring in rings
        for holder in shelves.place(ring, size=sizes[ring[0]], tolerate=tolerate)
    ]
    order = plan.workers.index
    return Keeping(
        routes=tuple(sorted(routes, key=lambda route: (order(route.owner), order(route.holder)))),
        elements=dict(shelves.kept),
        reason=_reason(len(rings), routes, short=shelves.short, near=shelves.near, tolerate=tolerate),
    )


def _rings(plan: Plan) -> Iterable[tuple[WorkerId, ...]]:
    """Workers that hold the same boxes, or the same piece of them."""
    for stage in range(plan.mesh.pp):
        for shard in range(plan.mesh.tp):
            yield from holders_of_pieces(plan, stage=stage, shard=shard)


class _Shelves:
    """Fills holders one ring after the other. `short`: copies without a place; `near`: copies on their owner's node."""

    def __init__(self, *, plan: Plan, homes: Mapping[WorkerId, Home]) -> None:
        self._living, self._homes = plan.living, homes
        self._is_alone = len({homes[worker].node for worker in plan.living}) == 1
        self.kept: Counter[WorkerId] = Counter()
        self.short = self.near = 0

    def place(self, ring: tuple[WorkerId, ...], *, size: int, tolerate: int) -> tuple[WorkerId, ...]:
        """Holders for what a ring holds, as many as it lacks."""
        found: list[WorkerId] = []
        for _ in range(tolerate + 1 - len({self._homes[worker].node for worker in ring})):
            holder = self._next((*ring, *found)) if not self._is_alone else self._beside(ring, found)
            if holder is None:
                self.short += 1
                continue
            self.kept[holder] += size
            found.append(holder)
        return tuple(found)

    def _next(self, holders: tuple[WorkerId, ...]) -> WorkerId | None:
        """The best place on a node that none of `holders` is on."""
        taken = {self._homes[worker].node for worker in holders}
        free = (worker for worker in self._living if self._homes[worker].node not in taken)
        return min(free, key=lambda worker: (self._drawbacks(worker, holders), self.kept[worker]), default=None)

    def _drawbacks(self, worker: WorkerId, holders: tuple[WorkerId, ...]) -> tuple[bool, bool]:
        """Whether it may be taken back at any time, and whether it shares a zone with some holder."""
        labels, zones = self._homes[worker].labels, {self._homes[other].labels.get(ZONE_LABEL) for other in holders}
        return is_spot(labels), labels.get(ZONE_LABEL) in zones

    def _beside(self, ring: tuple[WorkerId, ...], found: list[WorkerId]) -> WorkerId | None:
        """On the only node there is: one copy, of what one process alone holds."""
        if len(ring) > 1 or found:
            return None
        holder = min((w for w in self._living if w not in ring), key=lambda worker: self.kept[worker], default=None)
        self.near += holder is not None
        return holder


def _reason(num_rings: int, routes: list[CopyRoute], *, short: int, near: int, tolerate: int) -> str:
    if not routes and not short:
        return f"no copies: the replicas of every box lie on more than {counted(tolerate, noun='node')}"
    owners = len({route.owner for route in routes})
    parts = [
        f"{owners} of {counted(num_rings, noun='shard')} of a stage are copied, to outlive the loss of "
        f"{counted(tolerate, noun='node')}"
    ]
    if near:
        parts.append(f"{near} of the copies lie on their owner's node, the only one there is")
    if short:
        parts.append(f"{counted(short, noun='copy')} {have(short)} no place: there are too few nodes")
    return "; ".join(parts)
