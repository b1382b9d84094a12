"""Who of a node takes which rank, so that as much state as possible is where it is needed already.

    old   w0 layers 0-1, w1 layers 2-3        new   0-1, 2-3, 0-1, 2-3 on one node, laid over w1 w0 w2 w3
                                              ->    w0   w1   w2   w3       w0 and w1 keep what they hold

Workers change ranks only within their node: which nodes hold which ranks was decided by placement.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raymega.mesh import Mesh
from raymega.plan.cluster import NodeId
from raymega.plan.plan import Plan, WorkerId

Sitting = tuple[tuple[int, int | None, int], ...]
"""Of the workers of a node: the rank within a replica, the one before, and its place in the order of their names."""


def staying(new: Plan, *, old: Plan, node_of: Mapping[WorkerId, NodeId]) -> Plan:
    """The plan `new` with its workers in the ranks of which they hold most by `old`; ties go to lower ranks."""
    if len({node_of[worker] for worker in new.living}) == len(new.living):
        return new
    held = dict(zip(old.living, _within(old), strict=True))
    by_node: dict[NodeId, list[tuple[int, int, WorkerId]]] = {}
    for rank, within, worker in zip(_ranks(new), _within(new), new.living, strict=True):
        by_node.setdefault(node_of[worker], []).append((rank, within, worker))
    common, workers = _Common.of(new, old), list(new.workers)
    for sitting in by_node.values():
        if len(sitting) == 1:
            continue
        names = [worker for _, _, worker in sitting]
        turn = {worker: place for place, worker in enumerate(sorted(names))}
        alike = tuple((within, held.get(worker), turn[worker]) for _, within, worker in sitting)
        for (rank, _, _), place in zip(sitting, common.matched(alike), strict=True):
            workers[rank] = names[place]
    return new.with_workers(tuple(workers))


def _ranks(plan: Plan) -> Sequence[int]:
    """Of the living, in rank order."""
    if not plan.lost:
        return range(plan.mesh.size)
    tp, pp = plan.mesh.tp, plan.mesh.pp
    first = [(replica * pp + stage) * tp for replica, stage in plan.teams]
    return first if tp == 1 else [rank + shard for rank in first for shard in range(tp)]


def _within(plan: Plan) -> Sequence[int]:
    """The rank of each of the living within its replica."""
    replica = plan.mesh.pp * plan.mesh.tp
    return [rank % replica for rank in _ranks(plan)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    """What two ranks, of either plan, both hold: (stage, stage before) -> blocks, and the share of each of them.

    `known`: of ranks within a replica, since all replicas are alike; `found`: of nodes, most of which are.
    """

    new: Mesh
    old: Mesh
    blocks: Mapping[tuple[int, int], int]
    known: dict[tuple[int, int], float] = field(default_factory=dict)
    found: dict[Sitting, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, new: Plan, old: Plan) -> "_Common":
        held, had = ([_blocks(plan, stage) for stage in range(plan.mesh.pp)] for plan in (new, old))
        blocks = {(s, was): len(held[s] & had[was]) for s in range(new.mesh.pp) for was in range(old.mesh.pp)}
        return cls(new=new.mesh, old=old.mesh, blocks=blocks)

    def matched(self, sitting: Sitting) -> tuple[int, ...]:
        """For each place of a node, the place of the worker that is to have its rank."""
        if sitting not in self.found:
            self.found[sitting] = tuple(self._matched(sitting))
        return self.found[sitting]

    def _matched(self, sitting: Sitting) -> Iterator[int]:
        pairs = sorted(
            (-shared, rank, turn, worker)
            for worker, (_, was, turn) in enumerate(sitting)
            if was is not None
            for rank, (within, _, _) in enumerate(sitting)
            if (shared := self.of_ranks(within, was)) > 0
        )
        taken, placed = dict[int, int](), set[int]()
        for _, rank, _, worker in pairs:
            if rank not in taken and worker not in placed:
                taken[rank] = worker
                placed.add(worker)
        waiting = iter([worker for worker in range(len(sitting)) if worker not in placed])
        for rank in range(len(sitting)):
            yield taken[rank] if rank in taken else next(waiting)

    def of_ranks(self, rank: int, was: int) -> float:
        """Blocks that `rank` of a replica of the new plan and `was` of the old one hold, by the share of each."""
        if (rank, was) not in self.known:
            self.known[rank, was] = self._of_ranks(rank, was)
        return self.known[rank, was]

    def _of_ranks(self, rank: int, was: int) -> float:
        (stage, shard), (old_stage, old_shard) = divmod(rank, self.new.tp), divmod(was, self.old.tp)
        first = max(shard / self.new.tp, old_shard / self.old.tp)
        end = min((shard + 1) / self.new.tp, (old_shard + 1) / self.old.tp)
        return self.blocks[stage, old_stage] * max(0.0, end - first)


def _blocks(plan: Plan, stage: int) -> set[int]:
    return {block for v in plan.chunks_of(stage) for block in range(*plan.layers[v])}
