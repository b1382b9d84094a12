"""What would do where nothing fits: the layout that needs least, and the fewest nodes more that hold some layout.

    2 nodes of 8    tp=8 pp=2    stage 0 needs 271 GB of 81              the leanest that there are devices for
                    tp=8 pp=9    there is room for 10 + 7 x 11 + 9 layers     so 7 nodes more hold all 96

A layout is held if its layers can be cut so that no stage is too full. Bytes grow evenly with the layers of a stage, so
that is a sum: how many each stage has room for, beside embedding or head, messages, and passes on their way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.job import Job
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.placement import places_for_teams
from raymega.plan.space import Space
from raymega.plan.stages import balanced_counts, layers_of_counts
from raymega.plan.verdict import bytes_with, most_layers


def leanest(job: Job, *, space: Space, cluster: Cluster) -> ParallelLayout:
    """Of the layouts of one replica that there are devices for, the one whose fullest device needs least."""
    shapes = (
        replace(shape, recompute=space.recompute[-1])
        for tp in sorted(space.tp, reverse=True)[:2]
        for pp in range(1, min(job.model.num_layers, places_for_teams(cluster, tp=tp)) + 1)
        for shape in _shapes(job, mesh=Mesh(dp=1, pp=pp, tp=tp), space=space)
    )
    return min((_cut_by_bytes(shape, job=job) for shape in shapes), key=lambda layout: peak_bytes(job, layout))


def nodes_needed(job: Job, *, space: Space, cluster: Cluster) -> int | None:
    """The fewest nodes like the smallest one that, added, let some layout fit; None if no number does."""
    node, best = smallest(cluster), None
    for tp in sorted((size for size in space.tp if size <= node.devices), reverse=True):
        each, there = node.devices // tp, places_for_teams(cluster, tp=tp)
        most = None if best is None else there + (best - 1) * each
        need = _Need(job=job, space=space, tp=tp, usable=node.device.usable_bytes)
        teams = need.fewest_teams(most=most)
        best = best if teams is None else max(1, ceil((teams - there) / each))
    return best


def smallest(cluster: Cluster) -> Node:
    """The node whose devices have least memory."""
    return min(cluster.nodes, key=lambda node: node.device.usable_bytes)


def peak_bytes(job: Job, layout: ParallelLayout) -> float:
    """Of the fullest device."""
    return max(need.total for need in memory_by_stage(job, layout))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """Teams of `tp` devices, alike, with so many bytes each."""

    job: Job
    space: Space
    tp: int
    usable: float

    def fewest_teams(self, *, most: int | None) -> int | None:
        """The fewest that hold some layout, at most `most`: one replica, or several that share out what they keep."""
        stages, replicas = self.job.model.num_layers, self.job.batch_size // min(self.space.microbatch_sizes)
        tried = range(1, stages + 1 if most is None else min(stages, most) + 1)
        best = next((pp for pp in tried if self._holds(pp=pp, dp=1)), None)
        for pp in range(1, stages + 1):
            limit = best - 1 if best is not None else most
            widest = replicas if limit is None else min(replicas, limit // pp)
            if widest < 2:
                break
            if self._holds(pp=pp, dp=widest):
                best = pp * self._fewest_replicas(pp=pp, widest=widest)
        return best

    def _fewest_replicas(self, *, pp: int, widest: int) -> int:
        """Of two and more: what one keeps falls with their number."""
        low, high = 1, widest
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._holds(pp=pp, dp=middle) else (middle, high)
        return high

    def _holds(self, *, pp: int, dp: int) -> bool:
        mesh = Mesh(dp=dp, pp=pp, tp=self.tp)
        shapes = (
            replace(shape, recompute=again, shard_optimizer=shard)
            for shape in _shapes(self.job, mesh=mesh, space=self.space)
            for again in self.space.recompute
            for shard in self.space.shard_optimizer
        )
        rooms = (most_layers(shape, job=self.job, usable_bytes=(self.usable,) * pp) for shape in shapes)
        return any(min(room) > 0 and sum(room) >= self.job.model.num_layers for room in rooms)


def _shapes(job: Job, *, mesh: Mesh, space: Space) -> Iterator[ParallelLayout]:
    """Of a layer a stage and the smallest micro-batch; cut along the sequence, or spared the sums that it asks for."""
    cuts = (False, True) if mesh.tp > 1 and job.seq_len % mesh.tp == 0 else (False,)
    for cut in cuts:
        yield ParallelLayout(
            mesh=mesh,
            layers=layers_of_counts((1,) * mesh.pp),
            microbatch_size=min(space.microbatch_sizes),
            sequence_parallel=cut,
            shard_optimizer=space.shard_optimizer[-1],
        )


def _cut_by_bytes(shape: ParallelLayout, *, job: Job) -> ParallelLayout:
    """With layers cut so that its fullest device needs least."""
    one, two = (bytes_with(count, shape, job=job) for count in (1, 2))
    layer = [more - least for least, more in zip(one, two, strict=True)]
    rest = [least - each for least, each in zip(one, layer, strict=True)]
    counts = balanced_counts(job.model.num_layers, layer_s=layer, extra_s=rest)
    assert counts is not None, "there are as many layers as stages"
    return replace(shape, layers=layers_of_counts(counts))
