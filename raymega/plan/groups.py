"""Which workers need a group with each other: all groups of a plan, in the order in which they are built.

    dp=2 tp=2 pp=2      stage 0        stage 1
      replica 0         w0  w1         w2  w3        tp    w0 w1 | w2 w3 | w4 w5 | w6 w7       a team
      replica 1         w4  w5         w6  w7        dp    w0 w4 | w1 w5 | w2 w6 | w3 w7       same boxes
                                                     pair  w0 w2 | w1 w3 | w4 w6 | w5 w7       along the routes
                                                     tied  w0 w2 | w1 w3 | w4 w6 | w5 w7       both ends' embedding

Building a group blocks until all its members do. Every member builds its own in the order of this one list, so the
first group that is not yet built has all its members at it, and the building cannot deadlock. Pairs of even stages come
before those of odd ones: two rounds, however many stages there are.
"""

from dataclasses import dataclass
from typing import Literal

from raymega.mesh import Coord
from raymega.plan.plan import Plan, WorkerId

Axis = Literal["tp", "dp", "pair", "tied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A group to be made: `key` is unique in the run, `members` are in rank order."""

    axis: Axis
    key: str
    members: tuple[WorkerId, ...]


def groups_of(plan: Plan, *, generation: int, tied: bool) -> tuple[GroupPlan, ...]:
    """All groups of two and more, in building order.

    Args:
        generation: stands in every key.
        tied: input and output embedding are one matrix, so both ends of the pipeline hold it.
    """
    rows = [*_tp(plan), *_dp(plan), *_pairs(plan), *(_tied(plan) if tied else [])]
    return tuple(
        GroupPlan(axis=axis, key=f"g{generation}/{axis}/{name}", members=tuple(plan.workers[r] for r in sorted(ranks)))
        for axis, name, ranks in rows
        if len(ranks) > 1
    )


_Row = tuple[Axis, str, tuple[int, ...]]


def _tp(plan: Plan) -> list[_Row]:
    mesh = plan.mesh
    return [
        ("tp", f"r{replica}s{stage}", mesh.team(replica=replica, stage=stage))
        for replica in range(mesh.dp)
        for stage in range(mesh.pp)
    ]


def _dp(plan: Plan) -> list[_Row]:
    mesh = plan.mesh
    return [
        ("dp", f"s{stage}t{shard}", mesh.ring(stage=stage, shard=shard))
        for stage in range(mesh.pp)
        for shard in range(mesh.tp)
    ]


def _pairs(plan: Plan) -> list[_Row]:
    """Teams that a route makes neighbours, shard by shard, each two workers once whatever flows between them."""
    mesh, rows = plan.mesh, dict[str, _Row]()
    for (replica_a, a), (replica_b, b) in sorted(_edges(plan), key=lambda edge: (edge[0][1] % 2, edge)):
        for shard in range(mesh.tp):
            ends = sorted({mesh.rank(Coord(replica_a, a, shard)), mesh.rank(Coord(replica_b, b, shard))})
            name = "-".join(_place(mesh.coord(rank)) for rank in ends)
            rows[name] = ("pair", name, tuple(ends))
    return list(rows.values())


def _edges(plan: Plan) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    """(replica, stage) of both ends of every hop from a virtual stage to the next; the wrap between chunks included."""
    pp = plan.mesh.pp
    hops = {(v % pp, (v + 1) % pp) for v in range(len(plan.layers) - 1)}
    return {((route[a], a), (route[b], b)) for route in plan.routes for a, b in hops}


def _tied(plan: Plan) -> list[_Row]:
    mesh = plan.mesh
    ends = {
        (replica, shard): {mesh.rank(Coord(replica, stage, shard)) for stage in (0, mesh.pp - 1)}
        for replica in range(mesh.dp)
        for shard in range(mesh.tp)
    }
    return [("tied", f"r{replica}t{shard}", tuple(ranks)) for (replica, shard), ranks in ends.items()]


def _place(coord: Coord) -> str:
    return f"r{coord.replica}s{coord.stage}t{coord.shard}"
