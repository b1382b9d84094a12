"""Which workers need a group with each other: all groups of a plan, in the order in which they are built.

    dp=2 tp=2 pp=2      stage 0        stage 1
      replica 0         w0  w1         w2  w3        tp    w0 w1 | w2 w3 | w4 w5 | w6 w7       a team
      replica 1         w4  w5         w6  w7        dp    w0 w4 | w1 w5 | w2 w6 | w3 w7       same boxes
                                                     pair  w0 w2 | w1 w3 | w4 w6 | w5 w7       along the routes
                                                     tied  w0 w2 | w1 w3 | w4 w6 | w5 w7       both ends' embedding

Lost teams are in no group. Where an end of a replica is lost, all holders of a tied box are one group.

Building a group blocks until all its members do. Every member builds its own in the order of this one list, so the
first group that is not yet built has all its members at it, and the building cannot deadlock. Pairs of even stages come
before those of odd ones: two rounds, however many stages there are.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from raymega.mesh import Coord
from raymega.plan.plan import Place, Plan, WorkerId

Axis = Literal["tp", "dp", "pair", "tied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A group to be made: `key` is unique in the run, `members` are in rank order."""

    axis: Axis
    key: str
    members: tuple[WorkerId, ...]


def groups_of(
    plan: Plan, *, generation: int, tied: bool, links: Collection[tuple[Place, Place]] = ()
) -> tuple[GroupPlan, ...]:
    """All groups of two and more, in building order.

    Args:
        links: teams that have messages for each other beside those of the routes.
        generation: stands in every key.
        tied: input and output embedding are one matrix, so both ends of the pipeline hold it.
    """
    rows = [*_tp(plan), *_dp(plan), *_pairs(plan, links), *(_tied(plan) if tied else [])]
    return tuple(
        GroupPlan(axis=axis, key=f"g{generation}/{axis}/{name}", members=tuple(plan.workers[r] for r in sorted(ranks)))
        for axis, name, ranks in rows
        if len(ranks) > 1
    )


_Row = tuple[Axis, str, tuple[int, ...]]


def _tp(plan: Plan) -> list[_Row]:
    return [("tp", f"r{replica}s{stage}", plan.team(replica, stage)) for replica, stage in plan.teams]


def _dp(plan: Plan) -> list[_Row]:
    mesh = plan.mesh
    return [
        ("dp", f"s{stage}t{shard}", plan.ring(stage=stage, shard=shard))
        for stage in range(mesh.pp)
        for shard in range(mesh.tp)
    ]


def _pairs(plan: Plan, links: Collection[tuple[Place, Place]]) -> list[_Row]:
    """Teams that a route makes neighbours, shard by shard, each two workers once whatever flows between them."""
    mesh, rows = plan.mesh, dict[str, _Row]()
    for (replica_a, a), (replica_b, b) in sorted(_edges(plan) | set(links), key=lambda edge: (edge[0][1] % 2, edge)):
        for shard in range(mesh.tp):
            ends = sorted({mesh.rank(Coord(replica_a, a, shard)), mesh.rank(Coord(replica_b, b, shard))})
            name = "-".join(_name_of(mesh.coord(rank)) for rank in ends)
            rows[name] = ("pair", name, tuple(ends))
    return list(rows.values())


def _edges(plan: Plan) -> set[tuple[Place, Place]]:
    """Both ends, as (replica, stage), of every hop of a route and of the leaders' chain, which carries facts."""
    stages = range(plan.mesh.pp - 1)
    chain = {((plan.leader(stage), stage), (plan.leader(stage + 1), stage + 1)) for stage in stages}
    return chain | {((route[a], a), (route[b], b)) for route in plan.routes for a, b in plan.hops}


def _tied(plan: Plan) -> list[_Row]:
    mesh, last = plan.mesh, plan.last_stage
    whole = all(plan.is_living(replica, stage) for replica in range(mesh.dp) for stage in (0, last))
    rows: dict[str, set[int]] = {}
    for replica, stage in plan.teams:
        for shard in range(mesh.tp) if stage in (0, last) else ():
            name = f"r{replica}t{shard}" if whole else f"t{shard}"
            rows.setdefault(name, set()).add(mesh.rank(Coord(replica, stage, shard)))
    return [("tied", name, tuple(ranks)) for name, ranks in rows.items()]


def _name_of(coord: Coord) -> str:
    return f"r{coord.replica}s{coord.stage}t{coord.shard}"
