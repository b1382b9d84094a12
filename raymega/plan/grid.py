"""Every layout of a space, as arrays: estimated, and what cannot fit left out, before any of them is looked at.

    a block      one team and micro-batch: tp, samples, sequence parallel, recompute      a number each
    along it     (pp, dp) that there are devices for                                      N
    across it    (schedule, chunks, optimizer)                                            S
                                        seconds, their floor, whether there is room       [S, N]

Room: a stage that begins i passes before its first backward has room for at most U / (state + i kept) layers, and all
have to have room for L: of each schedule no more is counted than it keeps, so what is left out cannot fit.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from operator import ne

import numpy as np
from numpy.typing import NDArray

from raymega.mesh import Mesh
from raymega.model_shape import ParameterCount, local_parameter_count
from raymega.pipeline.catalog import schedule
from raymega.plan.activations import FP32, RecomputeKind, boundary_bytes, layer_activation_bytes
from raymega.plan.estimate import Bench, Numbers, Parts, replica_counts
from raymega.plan.parallel_layout import ParallelLayout, Recompute
from raymega.plan.placement import places_for_teams
from raymega.plan.plan import ShardOptimizer
from raymega.plan.space import Settings, Space
from raymega.plan.stage_state import has_masters, share_of_state
from raymega.plan.stages import balanced_layers

Way = tuple[str, int, ShardOptimizer]  # schedule, chunks, optimizer
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A choice of the space, and its closed form; `floor_s`: no cut of its layers takes less."""

    mesh: Mesh
    microbatch_size: int
    schedule: str
    num_chunks: int
    sequence_parallel: bool
    recompute: Recompute
    shard_optimizer: ShardOptimizer
    step_s: float
    floor_s: float

    def layout(self, num_layers: int) -> ParallelLayout:
        """With balanced layers."""
        return ParallelLayout(
            mesh=self.mesh,
            layers=balanced_layers(num_layers, num_stages=self.mesh.pp * self.num_chunks),
            microbatch_size=self.microbatch_size,
            schedule=self.schedule,
            sequence_parallel=self.sequence_parallel,
            recompute=self.recompute,
            shard_optimizer=self.shard_optimizer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """(pp, dp) of one tp, and by optimizer the share of state and the seconds of gradients and update of each."""

    tp: int
    counted: ParameterCount
    pp: Numbers
    dp: Numbers
    shares: dict[ShardOptimizer, Numbers]
    ends_s: dict[ShardOptimizer, Numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """See above; inf seconds: there is no such layout."""

    pairs: Pairs
    ways: tuple[Way, ...]
    microbatch_size: int
    sequence_parallel: bool
    recompute: Recompute
    step_s: Numbers  # [S, N]
    floor_s: Numbers  # [S, N]
    has_room: NDArray[np.bool_]  # [S, N]

    def at(self, index: int) -> Estimated:
        """One of them, by its place in the flat arrays."""
        way, pair = divmod(index, len(self.pairs.pp))
        name, chunks, shard = self.ways[way]
        return Estimated(
            mesh=Mesh(dp=int(self.pairs.dp[pair]), pp=int(self.pairs.pp[pair]), tp=self.pairs.tp),
            microbatch_size=self.microbatch_size,
            schedule=name,
            num_chunks=chunks,
            sequence_parallel=self.sequence_parallel,
            recompute=self.recompute,
            shard_optimizer=shard,
            step_s=float(self.step_s.flat[index]),
            floor_s=float(self.floor_s.flat[index]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All blocks of a space; the arrays: of all layouts, block after block."""

    blocks: tuple[Block, ...]
    firsts: tuple[int, ...]
    step_s: Numbers
    floor_s: Numbers
    has_room: NDArray[np.bool_]

    @classmethod
    def of(cls, bench: Bench, *, space: Space, more_dp: Sequence[int] = ()) -> "Grid":
        """Estimate every layout; `more_dp`: numbers of replicas to look at in any case."""
        blocks = tuple(_blocks(bench, space, more_dp))
        sizes = [block.step_s.size for block in blocks]
        empty = np.empty(0)
        return cls(
            blocks=blocks,
            firsts=tuple(accumulate(sizes, initial=0)),
            step_s=np.concatenate([empty, *(block.step_s.ravel() for block in blocks)]),
            floor_s=np.concatenate([empty, *(block.floor_s.ravel() for block in blocks)]),
            has_room=np.concatenate([empty > 0, *(block.has_room.ravel() for block in blocks)]),
        )

    def by_estimate(self, among: NDArray[np.bool_]) -> Indices:
        """The places `among` all at which there is a layout, the fastest first."""
        places = np.flatnonzero(among & np.isfinite(self.step_s))
        order: Indices = places[np.argsort(self.step_s[places], kind="stable")]
        return order

    def at(self, place: int) -> Estimated:
        """One layout."""
        block = bisect_right(self.firsts, place) - 1
        return self.blocks[block].at(place - self.firsts[block])

    def num_changes(self, asked: Settings) -> NDArray[np.int64]:
        """In how many settings each differs from `asked`."""
        return np.concatenate([np.empty(0, np.int64), *(_changes(block, asked).ravel() for block in self.blocks)])


def _changes(block: Block, asked: Settings) -> NDArray[np.int64]:
    pairs, mesh = block.pairs, asked.mesh
    own = (pairs.tp, block.microbatch_size, block.sequence_parallel, block.recompute)
    theirs = (mesh.tp, asked.microbatch_size, asked.sequence_parallel, asked.recompute)
    along = (pairs.dp != mesh.dp).astype(np.int64) + (pairs.pp != mesh.pp)
    wish = (asked.schedule, asked.num_chunks, asked.shard_optimizer)
    across = [sum(map(ne, way, wish)) for way in block.ways]
    changes: NDArray[np.int64] = sum(map(ne, own, theirs)) + along[None, :] + np.array(across)[:, None]
    return changes


def _blocks(bench: Bench, space: Space, more_dp: Sequence[int]) -> Iterator[Block]:
    job = bench.job
    ways = tuple((name, chunks, shard) for name, chunks in space.schedules for shard in space.shard_optimizer)
    for tp in space.tp:
        pairs = _pairs(bench, space, tp=tp, more_dp=more_dp)
        for cut, samples, again in product(space.sequence_parallel, space.microbatch_sizes, space.recompute):
            if len(pairs.pp) and not (cut and (tp == 1 or job.seq_len % tp)):
                parts = bench.parts(tp=tp, microbatch_size=samples, sequence_parallel=cut, recompute=again)
                yield _block(bench, parts, pairs=pairs, ways=ways, recompute=again)


def _pairs(bench: Bench, space: Space, *, tp: int, more_dp: Sequence[int]) -> Pairs:
    """Every number of stages with the numbers of replicas that find a place."""
    job, teams = bench.job, places_for_teams(bench.cluster, tp=tp)
    counted = local_parameter_count(job.model, seq_len=job.seq_len, tp=tp)
    found = list[tuple[int, int]]()
    for pp in space.pp:
        most = min(teams // pp, job.batch_size // min(space.microbatch_sizes))
        sizes = replica_counts(most) if space.dp is None else space.dp
        found += [(pp, dp) for dp in sorted({*sizes, *more_dp}) if dp <= most]
    ends_s = {
        shard: np.array([bench.ends_s(counted, pp=pp, tp=tp, dp=dp, shard=shard) for pp, dp in found])
        for shard in space.shard_optimizer
    }
    shares = {shard: np.array([share_of_state(shard, dp=dp) for _, dp in found]) for shard in space.shard_optimizer}
    all_pp, all_dp = (np.array([pair[axis] for pair in found], dtype=np.float64) for axis in (0, 1))
    return Pairs(tp=tp, counted=counted, pp=all_pp, dp=all_dp, shares=shares, ends_s=ends_s)


def _block(bench: Bench, parts: Parts, *, pairs: Pairs, ways: tuple[Way, ...], recompute: Recompute) -> Block:
    site, num_layers = parts.site, pairs.counted.blocks
    whole = bench.job.batch_size // site.microbatch_size
    each = np.ceil(whole / pairs.dp)
    pipe = parts.pipe(num_layers=num_layers, pp=pairs.pp, hops_s=bench.hops_s(site, pp=pairs.pp))
    step_s, floor_s, has_room = list[Numbers](), list[Numbers](), list[NDArray[np.bool_]]()
    spans = dict[tuple[str, int], tuple[Numbers, Numbers]]()
    for name, chunks, shard in ways:
        if (name, chunks) not in spans:
            spans[name, chunks] = pipe.span_s(schedule(name), chunks=chunks, microbatches=each)
        is_there = (pairs.dp <= whole) & (pairs.pp * chunks <= num_layers) & ((chunks == 1) | (pairs.pp > 1))
        span_s, floor = spans[name, chunks]
        step_s.append(np.where(is_there, span_s + pairs.ends_s[shard], np.inf))
        floor_s.append((floor + pairs.ends_s[shard]) / bench.pace(pairs.pp * pairs.dp * pairs.tp))
        has_room.append(_room(bench, parts, pairs, each, recompute, (name, chunks, shard)) >= num_layers)
    return Block(
        pairs=pairs,
        ways=ways,
        microbatch_size=site.microbatch_size,
        sequence_parallel=site.sequence_parallel,
        recompute=recompute,
        step_s=np.array(step_s),
        floor_s=np.array(floor_s),
        has_room=np.array(has_room),
    )


def _room(
    bench: Bench, parts: Parts, pairs: Pairs, microbatches: Numbers, recompute: Recompute, way: Way
) -> Numbers:  # fmt: skip
    """More layers than this have no place on the stages, each on the largest device of the cluster."""
    (name, chunks, shard), job, site, pp, m = way, bench.job, parts.site, pairs.pp, microbatches
    samples, tp, cut = site.microbatch_size, pairs.tp, site.sequence_parallel
    again: RecomputeKind = "full" if isinstance(recompute, frozenset) else recompute
    kept = layer_activation_bytes(job, microbatch_size=samples, tp=tp, sequence_parallel=cut, recompute=again)
    sent = boundary_bytes(job, microbatch_size=samples, tp=tp, sequence_parallel=cut)
    copies = 1 + job.software.reduces_out_of_place * (pairs.dp > 1)  # of the gradients
    moments = FP32 * (has_masters(job, shard=shard) + 2 * (job.optimizer == "adamw"))
    state: Numbers = job.element_bytes + job.software.gradient_bytes * copies + pairs.shares[shard] * moments
    logs = job.software.logs_boundaries and job.logs_on_device
    usable = np.maximum(0, bench.most_bytes - logs * sent * (2 * chunks - 1) * m * (pp > 1))
    layer, more, least = state * pairs.counted.block, *_passes_begun(name, chunks=chunks, pp=pp)
    # Of stages that begin i more + least passes before a backward, the sum of 1 / (layer + passes kept) is at most its
    # first term and the integral of the rest; others have begun all m.
    free = np.clip(np.floor((m - least) / more), 0, pp) if more else np.zeros_like(pp)
    first, last = layer + (more + least) * kept, layer + (more * free + least) * kept
    stages = (pp - free) / (layer + np.minimum(m, more * pp + least) * kept)
    stages += (free > 0) * (1 / first + np.log(np.maximum(last / first, 1)) / (max(more, 1e-9) * kept))
    logits = FP32 * site.tokens * job.dims.vocab / tp
    fullest = layer + np.minimum(m, more * pp + least) * kept
    ends = state * pairs.counted.embedding / fullest + (state * pairs.counted.head + logits) / first
    room: Numbers = usable * stages - ends
    return room


def _passes_begun(name: str, *, chunks: int, pp: Numbers) -> tuple[float, Numbers]:
    """(a, b): the i-th stage from the end begins a i + b passes, of all its chunks, before it needs a gradient."""
    begun: dict[str, tuple[float, Numbers]] = {
        "interleaved": (2 / chunks, ((chunks - 1) * pp - 1) / chunks),
        "zb-h2": (2.0, -np.ones_like(pp)),
        "zb-v": (0.0, pp - 0.5),
    }
    return begun.get(name, (1.0, np.zeros_like(pp)))
