"""Who of a node takes which rank, so that as much state as possible is where it is needed already.

    old   w0 layers 0-1, w1 layers 2-3        new   0-1, 2-3, 0-1, 2-3 on one node, laid over w1 w0 w2 w3
                                              ->    w0   w1   w2   w3       w0 and w1 keep what they hold

Workers change ranks only within their node: which nodes hold which ranks was decided by placement.
"""

from collections.abc import Mapping

from raymega.plan.cluster import NodeId
from raymega.plan.plan import Plan, WorkerId


def staying(new: Plan, *, old: Plan, node_of: Mapping[WorkerId, NodeId]) -> Plan:
    """The plan `new` with its workers in the ranks of which they hold most by `old`; ties go to lower ranks."""
    seated = set(new.workers)
    holders = {worker: old.coord_of(worker) for worker in old.living if worker in seated}
    ranks = [rank for place in new.teams for rank in new.team(*place)]
    ranks_on: dict[NodeId, list[int]] = {}
    for rank in ranks:
        ranks_on.setdefault(node_of[new.workers[rank]], []).append(rank)
    pairs = sorted(
        (-_common(new, rank, old, old.mesh.rank(coord)), rank, worker)
        for worker, coord in holders.items()
        for rank in ranks_on.get(node_of[worker], ())
    )
    taken, placed = dict[int, WorkerId](), set[WorkerId]()
    for common, rank, worker in pairs:
        if common < 0 and rank not in taken and worker not in placed:
            taken[rank] = worker
            placed.add(worker)
    waiting: dict[NodeId, list[WorkerId]] = {}
    for worker in new.living:
        if worker not in placed:
            waiting.setdefault(node_of[worker], []).append(worker)
    for rank in ranks:
        if rank not in taken:
            taken[rank] = waiting[node_of[new.workers[rank]]].pop(0)
    return new.with_workers(tuple(taken.get(rank, worker) for rank, worker in enumerate(new.workers)))


def _common(new: Plan, rank: int, old: Plan, old_rank: int) -> float:
    """Blocks that both ranks hold, by the share of each that both hold."""
    at, was = new.mesh.coord(rank), old.mesh.coord(old_rank)
    blocks = len(_blocks(new, at.stage) & _blocks(old, was.stage))
    first = max(at.shard / new.mesh.tp, was.shard / old.mesh.tp)
    end = min((at.shard + 1) / new.mesh.tp, (was.shard + 1) / old.mesh.tp)
    return blocks * max(0.0, end - first)


def _blocks(plan: Plan, stage: int) -> set[int]:
    return {block for v in plan.chunks_of(stage) for block in range(*plan.layers[v])}
