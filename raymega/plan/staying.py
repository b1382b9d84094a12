"""Who of a node takes which rank, so that as much state as possible is where it is needed already.

    old   w0 layers 0-1, w1 layers 2-3        new   0-1, 2-3, 0-1, 2-3 on one node, laid over w1 w0 w2 w3
                                              ->    w0   w1   w2   w3       w0 and w1 keep what they hold

Workers change ranks only within their node: which nodes hold which ranks was decided by placement.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raymega.mesh import Mesh
from raymega.plan.cluster import NodeId
from raymega.plan.plan import Plan, WorkerId


def staying(new: Plan, *, old: Plan, node_of: Mapping[WorkerId, NodeId]) -> Plan:
    """The plan `new` with its workers in the ranks of which they hold most by `old`; ties go to lower ranks."""
    seated = set(new.workers)
    holders = {old.workers[rank]: rank for place in old.teams for rank in old.team(*place)}
    common = _Common.of(new, old)
    ranks = [rank for place in new.teams for rank in new.team(*place)]
    ranks_on: dict[NodeId, list[int]] = {}
    for rank in ranks:
        ranks_on.setdefault(node_of[new.workers[rank]], []).append(rank)
    pairs = sorted(
        (-shared, rank, worker)
        for worker, was in holders.items()
        if worker in seated
        for rank in ranks_on.get(node_of[worker], ())
        if (shared := common.of_ranks(rank, was)) > 0
    )
    taken, placed = dict[int, WorkerId](), set[WorkerId]()
    for _, rank, worker in pairs:
        if rank not in taken and worker not in placed:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    """What two ranks, of either plan, both hold: (stage, stage before) -> blocks, and the share of each of them.

    `known`: of ranks within a replica, since all replicas are alike.
    """

    new: Mesh
    old: Mesh
    blocks: Mapping[tuple[int, int], int]
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, new: Plan, old: Plan) -> "_Common":
        held, had = ([_blocks(plan, stage) for stage in range(plan.mesh.pp)] for plan in (new, old))
        blocks = {(s, was): len(held[s] & had[was]) for s in range(new.mesh.pp) for was in range(old.mesh.pp)}
        return cls(new=new.mesh, old=old.mesh, blocks=blocks)

    def of_ranks(self, rank: int, was: int) -> float:
        """Blocks that `rank` of the new plan and `was` of the old one hold, by the share of each."""
        within = rank % (self.new.pp * self.new.tp), was % (self.old.pp * self.old.tp)
        if within not in self.known:
            self.known[within] = self._of_ranks(*within)
        return self.known[within]

    def _of_ranks(self, rank: int, was: int) -> float:
        (stage, shard), (old_stage, old_shard) = divmod(rank, self.new.tp), divmod(was, self.old.tp)
        first = max(shard / self.new.tp, old_shard / self.old.tp)
        end = min((shard + 1) / self.new.tp, (old_shard + 1) / self.old.tp)
        return self.blocks[stage, old_stage] * max(0.0, end - first)


def _blocks(plan: Plan, stage: int) -> set[int]:
    return {block for v in plan.chunks_of(stage) for block in range(*plan.layers[v])}
