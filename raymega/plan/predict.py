"""What a step of a layout takes on a cluster: seconds by part, bytes by kind.

seats      ranks on nodes      -> the slowest device, the links of each talk       (plan.seats)
passes     FLOPs, bytes        -> seconds of F and B of each virtual stage         (plan.passes, plan.cost)
pipeline   the real actions    -> when each runs                                   (pipeline.timeline)
reduce     gradients over dp and between tied ends, and of the gather of weights what is seen
apply      the optimizer's pass over memory
step_s = pipeline + reduce + apply

part       seconds of the average device
compute    passes                                  bubble     waiting for others, messages included
exchange   collectives of a team that are seen     reduce, apply, host
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from raymega.pipeline.actions import Kind, Program
from raymega.pipeline.catalog import Schedule, schedule
from raymega.pipeline.running_order import RunningOrder, running_order
from raymega.pipeline.timeline import Timeline, even_durations, timeline
from raymega.plan.cluster import Cluster, NodeId
from raymega.plan.collectives import half_ring_s, message_s
from raymega.plan.cost import update_bytes
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.job import Job
from raymega.plan.memory import StageMemory, memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout, Recompute, layout_of
from raymega.plan.passes import Ground, Passes, passes_of
from raymega.plan.placement import first_that_suffice, place
from raymega.plan.plan import Plan
from raymega.plan.programs import team_programs_of
from raymega.plan.seats import seats_of
from raymega.plan.stage_state import optimizer_share, stage_parameters

ORDERS_KEPT = 16  # the largest of them take 10 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """Where the seconds of a step go on the average device; they add up to the step."""

    compute_s: float
    exchange_s: float
    bubble_s: float
    reduce_s: float
    apply_s: float
    host_s: float

    @property
    def total_s(self) -> float:
        return sum(self.by_part.values())

    @property
    def by_part(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """What a step takes.

    Args:
        memory: on each device, by stage.
        usable_bytes: on the smallest device of each stage.
        job: what is computed.
    """

    layout: ParallelLayout
    seconds: StepSeconds
    memory: tuple[StageMemory, ...]
    usable_bytes: tuple[float, ...]
    job: Job

    @property
    def step_s(self) -> float:
        return self.seconds.total_s

    @property
    def tokens_per_s(self) -> float:
        return self.job.tokens_per_step / self.step_s

    def schedule_bubble(self) -> float:
        """The share that the schedule itself leaves empty, were all passes of a kind as long."""
        return schedule_bubble(self.layout, job=self.job)

    @property
    def fits(self) -> bool:
        return all(need.total <= have for need, have in zip(self.memory, self.usable_bytes, strict=True))

    @property
    def peak_bytes(self) -> float:
        """Of the device that needs most."""
        return max(need.total for need in self.memory)


def predict(
    plan: Plan, *, job: Job, cluster: Cluster, recompute: Recompute, nodes: Sequence[NodeId] | None = None,
    constants: Constants = PUBLISHED,
) -> StepPrediction:  # fmt: skip
    """Predict a step of `plan` on `cluster`.

    Args:
        recompute: as its config says.
        nodes: of each rank; default: as `placement.place` lays them, on the first that suffice.
    """
    layout = layout_of(plan, recompute=recompute)
    return predict_layout(layout, job=job, cluster=cluster, nodes=nodes, constants=constants)


def predict_layout(
    layout: ParallelLayout,
    *,
    job: Job,
    cluster: Cluster,
    nodes: Sequence[NodeId] | None = None,
    constants: Constants = PUBLISHED,
) -> StepPrediction:
    """Predict a step of a layout. Arguments as for `predict`."""
    sitting = nodes or place(layout.mesh, cluster=first_that_suffice(layout.mesh, cluster=cluster))
    ground = Ground(
        job=job,
        layout=layout,
        seats=seats_of(layout.mesh, nodes=sitting, cluster=cluster),
        cluster=cluster,
        constants=constants,
    )
    return StepPrediction(
        layout=layout,
        seconds=step_seconds(ground),
        memory=memory_by_stage(job, layout),
        usable_bytes=tuple(seat.least_bytes for seat in ground.seats),
        job=job,
    )


def step_seconds(ground: Ground, *, passes: Passes | None = None) -> StepSeconds:
    """The parts of a step; `passes`: of its micro-batches, where they are known."""
    passes = passes or passes_of(ground)
    run_s = pipeline_s(ground, passes)
    count, pp = ground.layout.microbatches(ground.job), ground.layout.mesh.pp
    compute = sum(p.forward_s + p.backward_s for p in passes.seconds) * count / pp
    splits = ground.layout.order.splits
    exchange = sum(p.exchange_s(splits=splits) for p in passes.seconds) * count / pp
    host = ground.constants.pass_s * len(ground.layout.order.kinds) * count * ground.layout.num_chunks
    return StepSeconds(
        compute_s=compute,
        exchange_s=exchange,
        bubble_s=max(0.0, run_s - compute - exchange - host),
        reduce_s=reduce_seconds(ground) + gather_seconds(ground, passes),
        apply_s=max(apply_seconds(ground, stage=stage) for stage in range(pp)),
        host_s=host + ground.constants.step_s,
    )


def reduce_seconds(ground: Ground) -> float:
    """Gradients over the replicas of each stage, all at once, then between the ends that hold a tied matrix."""
    slowest = max(_ring_seconds(ground, stage) for stage in range(ground.layout.mesh.pp))
    job, mesh = ground.job, ground.layout.mesh
    if not job.model.tie_embeddings or mesh.pp == 1:
        return slowest
    matrix = -(-job.dims.vocab // mesh.tp) * job.model.hidden_size * job.software.gradient_bytes
    return slowest + 2 * message_s(matrix, link=ground.seats[-1].hop, constants=ground.constants)


def apply_seconds(ground: Ground, *, stage: int) -> float:
    """Passes over memory of norm, clipping and update; a buffer of its own for the sum costs a copy."""
    job, layout = ground.job, ground.layout
    parameters = stage_parameters(job, layout, stage=stage)
    return ground.site(stage).memory_s(parameters * update_bytes(job, share=optimizer_share(layout)))


def schedule_bubble(layout: ParallelLayout, *, job: Job) -> float:
    """The share of a step that the schedule leaves empty where all passes of a kind take as long."""
    num_stages = len(layout.layers)
    programs = _programs(layout.order, layout.mesh.pp, layout.num_chunks, num_microbatches=layout.microbatches(job))
    return timeline(
        programs,
        durations=even_durations(num_stages=num_stages, forward_s=1.0, backward_s=2.0),
        num_stages=num_stages,
    ).bubble_share()


def pipeline_s(ground: Ground, passes: Passes) -> float:
    """The clock of the replica that has most micro-batches."""
    layout = ground.layout
    order = _order(
        layout.schedule, layout.table, layout.mesh.pp, num_chunks=layout.num_chunks,
        num_microbatches=layout.microbatches(ground.job),
    )  # fmt: skip
    return order.clocked(durations=passes.durations, message_s=passes.messages).total_s


def predicted_timeline(
    plan: Plan, *, job: Job, cluster: Cluster, recompute: Recompute, constants: Constants = PUBLISHED
) -> Timeline:
    """When each team of `plan` would run what; up to the reduction of gradients. Arguments as for `predict`."""
    layout = layout_of(plan, recompute=recompute)
    nodes = place(layout.mesh, cluster=first_that_suffice(layout.mesh, cluster=cluster))
    seats = seats_of(layout.mesh, nodes=nodes, cluster=cluster)
    ground = Ground(job=job, layout=layout, seats=seats, cluster=cluster, constants=constants)
    passes = passes_of(ground)
    return timeline(
        team_programs_of(plan), durations=passes.durations, num_stages=len(plan.layers), message_s=passes.messages
    )


def gather_seconds(ground: Ground, passes: Passes) -> float:
    """What is seen of the weights' way back to replicas that each updated a part of them.

    They travel in the order in which the next forward reads them: chunk by chunk, and within one layer by layer. So the
    first pass of a chunk ends no sooner than its last layer's weights are there, and that layer is computed.
    """
    layout, job, ahead_s, seen_s = ground.layout, ground.job, 0.0, 0.0
    if layout.shard_optimizer == "none" or layout.mesh.dp == 1:
        return 0.0
    whole = [_half_ring_seconds(ground, stage, element_bytes=job.element_bytes) for stage in range(layout.mesh.pp)]
    if not job.software.gathers_under_forward:
        return max(whole)
    for v, (first, end) in enumerate(layout.layers):
        stage = layout.stage_of(v)
        mine = layout.chunks_of(stage)
        there_s = whole[stage] * (mine.index(v) + 1) / len(mine)
        ahead_s += passes.durations[v, Kind.F]
        seen_s = max(seen_s, there_s + passes.durations[v, Kind.F] / (end - first) - ahead_s)
        ahead_s += passes.messages.get((v, Kind.F), 0.0)
    return seen_s


def _ring_seconds(ground: Ground, stage: int) -> float:
    """The sum of a stage's gradients; where state is cut, each element to whoever updates it, mirrored to two."""
    gradient, shard, dp = ground.job.software.gradient_bytes, ground.layout.shard_optimizer, ground.layout.mesh.dp
    scatter_s = _half_ring_seconds(ground, stage, element_bytes=gradient)
    if shard == "none":
        return 2 * scatter_s
    return scatter_s * (1 + (shard == "mirrored" and dp > 1) / max(1, dp - 1))


def _half_ring_seconds(ground: Ground, stage: int, *, element_bytes: int) -> float:
    """A scatter or a gather over the replicas of a stage, of so many bytes for each of its parameters."""
    num_bytes = element_bytes * stage_parameters(ground.job, ground.layout, stage=stage)
    ring, links = ground.seats[stage].replicas, ground.cluster.links
    return half_ring_s(num_bytes, ring=ring, links=links, constants=ground.constants)


@lru_cache(maxsize=ORDERS_KEPT)
def _order(
    name: str, table: tuple[str, ...], num_stages: int, *, num_chunks: int, num_microbatches: int
) -> RunningOrder:  # fmt: skip
    """Of a schedule, whatever its passes take: layouts that differ in these alone are timed on the same one."""
    programs = _programs(schedule(name, rows=table), num_stages, num_chunks, num_microbatches=num_microbatches)
    return running_order(programs, num_stages=num_stages * num_chunks)


def _programs(row: Schedule, num_stages: int, num_chunks: int, *, num_microbatches: int) -> dict[str, Program]:
    microbatches = tuple(range(num_microbatches))
    return {
        f"stage {stage}": row.program(stage=stage, num_stages=num_stages, microbatches=microbatches, chunks=num_chunks)
        for stage in range(num_stages)
    }
