"""The best layouts of a space on a cluster: all are estimated, those that may be best are timed on their real actions.

    every (tp, pp, micro-batch, schedule, ..) with its best few dp    estimated in closed form     (plan.estimate)
    in the order of the estimate                                      placed, split, held to memory
      those that fit, until the estimate is `MARGIN` above the best   timed                        (plan.predict)
      those that do not                                               kept with the reason

Estimate and clock differ by messages, uneven stages and real links, so the first few are timed, not only the first.
A long step is timed on its first micro-batches, and goes on at the pace of the last of them: a schedule that repeats
itself has one. What is chosen is then timed whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from raymega.mesh import Mesh
from raymega.model_shape import ParameterCount, local_parameter_count
from raymega.plan.cluster import Cluster, NodeId
from raymega.plan.estimate import Bench, Parts, replica_counts
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.job import Job
from raymega.plan.memory import memory_by_stage, stage_memory
from raymega.plan.parallel_layout import ParallelLayout, Recompute
from raymega.plan.passes import Ground, passes_of
from raymega.plan.placement import place, places_for_teams
from raymega.plan.plan import ShardOptimizer
from raymega.plan.predict import StepPrediction, predict_layout, step_seconds
from raymega.plan.seats import StageSeats, seats_of
from raymega.plan.space import Space
from raymega.plan.stage_state import stage_state
from raymega.plan.stages import Layers, balanced_layers
from raymega.plan.verdict import Verdict, split, why_not

MARGIN = 1.25
LEAST_TIMED = 4
MOST_ACTIONS = 100_000  # timed in all, beyond the first few
MOST_REFUSED = 40
FIRST_MICROBATCHES = 3  # times the stages
SPARE = 1.1
SPLITS_KEPT = 256
DP_EACH = 3  # numbers of replicas that are kept of each choice, the best by the closed form

Ends = dict[int, tuple[Mesh, float]]  # dp -> the mesh, and its seconds of gradients and update


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A choice of the space, and its closed form."""

    mesh: Mesh
    microbatch_size: int
    schedule: str
    num_chunks: int
    sequence_parallel: bool
    recompute: Recompute
    shard_optimizer: ShardOptimizer
    step_s: float

    def layout(self, num_layers: int) -> ParallelLayout:
        """With balanced layers."""
        return ParallelLayout(
            mesh=self.mesh,
            layers=_even_layers(num_layers, self.mesh.pp * self.num_chunks),
            microbatch_size=self.microbatch_size,
            schedule=self.schedule,
            sequence_parallel=self.sequence_parallel,
            recompute=self.recompute,
            shard_optimizer=self.shard_optimizer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search saw.

    Args:
        ranked: timed layouts that fit, fastest first.
        refused: would have been tried before the last of these, but do not fit; with estimated seconds.
        considered: layouts that were estimated.
    """

    ranked: tuple[Verdict, ...]
    refused: tuple[Verdict, ...]
    considered: int


def search(job: Job, *, space: Space, cluster: Cluster, constants: Constants = PUBLISHED) -> Found:
    """Find the fastest layouts of `space` that fit."""
    bench = Bench.of(job, cluster=cluster, constants=constants)
    order = sorted(estimates(bench, space=space), key=lambda row: row.step_s)
    return timed(order, board=Board.of(job, cluster=cluster, constants=constants))


def timed(order: Iterable[Estimated], *, board: "Board") -> Found:
    """Try layouts in this order until no other can be much faster."""
    ranked, refused, best_s, considered, actions = list[Verdict](), list[Verdict](), float("inf"), 0, 0
    for row in order:
        considered += 1
        if row.step_s > best_s * MARGIN or (len(ranked) >= LEAST_TIMED and actions > MOST_ACTIONS):
            continue
        layout = row.layout(board.job.model.num_layers)
        if board.is_hopeless(layout) and len(refused) >= MOST_REFUSED:
            continue
        verdict = board.tried(layout, estimated_s=row.step_s)
        if verdict.refused is None:
            ranked.append(verdict)
            actions += (
                2 * row.mesh.pp * row.num_chunks * min(7 * row.mesh.pp, verdict.layout.microbatches(board.job))
            )  # two runs of three and four times the stages
            best_s = min(best_s, verdict.step_s)
        elif len(refused) < MOST_REFUSED:
            refused.append(verdict)
    ranked.sort(key=lambda verdict: (verdict.step_s, verdict.layout.mesh.size))
    return Found(ranked=tuple(ranked), refused=tuple(refused), considered=considered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Layouts of one job on one cluster.

    Args:
        most_bytes: usable on its largest device.
        places: of each mesh, found once.
        state_bytes: of the first stage and the last together, whatever passes through them; found once.
    """

    job: Job
    cluster: Cluster
    constants: Constants
    most_bytes: float
    places: dict[Mesh, tuple[tuple[NodeId, ...], tuple[StageSeats, ...]]] = field(default_factory=dict)
    state_bytes: dict[tuple[Mesh, int, ShardOptimizer], float] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, *, cluster: Cluster, constants: Constants) -> "Board":
        """An empty one."""
        most_bytes = max(node.device.usable_bytes for node in cluster.nodes)
        return cls(job=job, cluster=cluster, constants=constants, most_bytes=most_bytes)

    def tried(self, layout: ParallelLayout, *, estimated_s: float) -> Verdict:
        """Place, split by speed or else evenly, hold to memory and, if it fits, time."""
        if self.is_hopeless(layout):
            need = stage_memory(self.job, layout, stage=0)
            why = why_not((need,), (self.most_bytes,))
            return Verdict(layout=layout, step_s=estimated_s, peak_bytes=need.total, refused=why)
        _, seats = self.seated(layout.mesh)
        held = self._held(split(layout, ground=self._ground(layout, seats)), seats)
        if held.refused is not None:
            even = self._held(layout, seats)
            held = even if even.refused is None else held
        step_s = estimated_s if held.refused is not None else self._paced_s(held.layout, seats)
        return replace(held, step_s=step_s)

    def _held(self, layout: ParallelLayout, seats: tuple[StageSeats, ...]) -> Verdict:
        """Hold to memory; not timed yet."""
        memory = memory_by_stage(self.job, layout)
        refused = why_not(memory, tuple(seat.least_bytes for seat in seats))
        return Verdict(layout=layout, step_s=0.0, peak_bytes=max(need.total for need in memory), refused=refused)

    def is_hopeless(self, layout: ParallelLayout) -> bool:
        """Whether no cut of the layers can help: the first stage and the last are too full together."""
        ends, key = (0, layout.mesh.pp - 1), (layout.mesh, layout.num_chunks, layout.shard_optimizer)
        if key not in self.state_bytes:
            self.state_bytes[key] = sum(stage_state(self.job, layout, stage=stage).total for stage in ends)
        if self.state_bytes[key] / 2 > SPARE * self.most_bytes:
            return True
        needs = (stage_memory(self.job, layout, stage=stage).total for stage in ends)
        return sum(needs) / 2 > SPARE * self.most_bytes

    def predicted(self, layout: ParallelLayout) -> StepPrediction:
        """Time the whole step."""
        nodes, _ = self.seated(layout.mesh)
        return predict_layout(layout, job=self.job, cluster=self.cluster, nodes=nodes, constants=self.constants)

    def seated(self, mesh: Mesh) -> tuple[tuple[NodeId, ...], tuple[StageSeats, ...]]:
        """Nodes of each rank, and their summary."""
        if mesh not in self.places:
            nodes = place(mesh, cluster=self.cluster)
            self.places[mesh] = nodes, seats_of(mesh, nodes=nodes, cluster=self.cluster)
        return self.places[mesh]

    def _paced_s(self, layout: ParallelLayout, seats: tuple[StageSeats, ...]) -> float:
        count, pp = layout.microbatches(self.job), layout.mesh.pp
        first = FIRST_MICROBATCHES * pp
        if count <= first + pp:
            return step_seconds(self._ground(layout, seats)).total_s
        passes = passes_of(self._ground(layout, seats))
        short, longer = (
            step_seconds(self._ground(layout, seats, microbatches=number), passes=passes).total_s
            for number in (first, first + pp)
        )
        return longer + (longer - short) * (count - first - pp) / pp

    def _ground(
        self, layout: ParallelLayout, seats: tuple[StageSeats, ...], *, microbatches: int | None = None
    ) -> Ground:
        each = layout.mesh.dp * layout.microbatch_size
        job = self.job if microbatches is None else replace(self.job, batch_size=microbatches * each)
        return Ground(job=job, layout=layout, seats=seats, cluster=self.cluster, constants=self.constants)


def estimates(bench: Bench, *, space: Space) -> Iterator[Estimated]:
    """Every choice of the space but dp, with the numbers of replicas that are best by the closed form."""
    job, known = bench.job, dict[tuple[int, int, ShardOptimizer], Ends]()
    for tp in space.tp:
        teams = places_for_teams(bench.cluster, tp=tp)
        counted = local_parameter_count(job.model, seq_len=job.seq_len, tp=tp)
        for sequence_parallel in space.sequence_parallel:
            if sequence_parallel and (tp == 1 or job.seq_len % tp):
                continue
            for microbatch_size in space.microbatch_sizes:
                for recompute in space.recompute:
                    parts = bench.parts(
                        tp=tp,
                        microbatch_size=microbatch_size,
                        sequence_parallel=sequence_parallel,
                        recompute=recompute,
                    )
                    for pp in space.pp if teams else ():
                        yield from _with_dp(bench, space, parts, counted, recompute, pp=pp, teams=teams, known=known)


def _with_dp(
    bench: Bench, space: Space, parts: Parts, counted: ParameterCount, recompute: Recompute, *, pp: int, teams: int,
    known: dict[tuple[int, int, ShardOptimizer], Ends],
) -> Iterator[Estimated]:  # fmt: skip
    """The schedules and optimizers of one team and number of stages; `known`: by pp, tp and optimizer."""
    site, num_layers, tp = parts.site, counted.blocks, parts.site.ring.members
    microbatches = bench.job.batch_size // site.microbatch_size
    most = min(teams // pp, microbatches)
    counts = replica_counts(most) if space.dp is None else tuple(dp for dp in space.dp if dp <= most)
    if not counts:
        return
    pipe = parts.pipe(num_layers=num_layers, pp=pp, hop_s=bench.hop_s(site, pp=pp))
    each = [-(-microbatches // dp) for dp in counts]
    parameters = counted.total if pp == 1 else counted.block * -(-num_layers // pp) + counted.embedding / pp
    for schedule, chunks in space.schedules:
        if pp * chunks > num_layers or (chunks > 1 and pp == 1):
            continue
        paces = pipe.paces(chunks=chunks, microbatches=each)
        for shard in space.shard_optimizer:
            ends = known.setdefault((pp, tp, shard), {})
            for mesh in [Mesh(dp=dp, pp=pp, tp=tp) for dp in counts if dp not in ends]:
                ends[mesh.dp] = mesh, bench.ends_s(parameters, mesh=mesh, shard=shard)
            by_dp = sorted([(pace_s + ends[dp][1], dp) for pace_s, dp in zip(paces, counts, strict=True)])
            for step_s, dp in by_dp[:DP_EACH]:
                yield Estimated(
                    mesh=ends[dp][0],
                    microbatch_size=site.microbatch_size,
                    schedule=schedule,
                    num_chunks=chunks,
                    sequence_parallel=site.sequence_parallel,
                    recompute=recompute,
                    shard_optimizer=shard,
                    step_s=step_s,
                )


@lru_cache(maxsize=SPLITS_KEPT)
def _even_layers(num_layers: int, num_stages: int) -> Layers:
    return balanced_layers(num_layers, num_stages=num_stages)
