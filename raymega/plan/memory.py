"""Bytes that a device needs, by stage and by kind: does a layout fit, and which part does not?

    n parameters on a shard    e bytes an element    m micro-batches    i of them in flight under the schedule

    weights        n e
    gradients      n 4          accumulated in fp32
    masters        n 4          where weights are of 16 bits
    moments        n 8          adamw
    activations    i x what the stage's layers keep (`plan.activations`)
    logits         the last stage's, fp32, of each micro-batch in flight there, and what the head reads
    boundary log   m x (activation down + gradient up): what was sent is kept until the step is committed
    buffers        the reduced gradients n 4, receives posted ahead, one layer under recomputation

zero1 divides masters and moments by dp; mirrored holds them twice. Parameters are counted as `layout` cuts them, on the
first shard, which holds most.
"""

from dataclasses import dataclass, fields

from raymega.config.dims import dims_of
from raymega.model_shape import ParameterCount, local_parameter_count
from raymega.plan.activations import FP32, RecomputeKind, boundary_bytes, layer_activation_bytes
from raymega.plan.job import Job
from raymega.plan.parallel_layout import ParallelLayout

RECEIVES_AHEAD = 2  # as `comm.p2p.Inbox` posts them


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each device of a stage, by kind."""

    weights: float
    gradients: float
    masters: float
    moments: float
    activations: float
    logits: float
    boundary_log: float
    buffers: float

    @property
    def total(self) -> float:
        return sum(self.by_kind.values())

    @property
    def by_kind(self) -> dict[str, float]:
        """Kind -> bytes, in the order above."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def largest_kind(self) -> str:
        """What takes most."""
        return max(fields(self), key=lambda field: float(getattr(self, field.name))).name.replace("_", " ")


def memory_by_stage(job: Job, layout: ParallelLayout) -> tuple[StageMemory, ...]:
    """What each stage's devices need."""
    return tuple(stage_memory(job, layout, stage=stage) for stage in range(layout.mesh.pp))


def stage_memory(job: Job, layout: ParallelLayout, *, stage: int) -> StageMemory:
    """What a device of `stage` needs."""
    parameters = stage_parameters(job, layout, stage=stage)
    optimizer_states = parameters * optimizer_share(layout)
    return StageMemory(
        weights=parameters * job.element_bytes,
        gradients=parameters * job.software.gradient_bytes,
        masters=optimizer_states * (FP32 if job.precision != "fp32" else 0),
        moments=optimizer_states * (2 * FP32 if job.optimizer == "adamw" else 0),
        activations=_activations(job, layout, stage),
        logits=_logits(job, layout) if stage == _last(layout) else 0.0,
        boundary_log=_boundary_log(job, layout, stage),
        buffers=_buffers(job, layout, stage, parameters),
    )


def stage_parameters(job: Job, layout: ParallelLayout, *, stage: int) -> int:
    """Elements that the first shard of `stage` holds, over its chunks."""
    counted = _counts(job, layout.mesh.tp)
    end = len(layout.layers) - 1
    total = 0
    for chunk in layout.chunks_of(stage):
        first, stop = layout.layers[chunk]
        total += counted.block * (stop - first)
        total += counted.embedding if chunk == 0 else 0
        total += counted.final_norm + _head(job, counted, alone=chunk == 0) if chunk == end else 0
    return total


def optimizer_share(layout: ParallelLayout) -> float:
    """The part of masters and moments that one replica holds."""
    dp = layout.mesh.dp
    return {"none": 1.0, "zero1": 1 / dp, "mirrored": min(1.0, 2 / dp)}[layout.shard_optimizer]


def in_flight(job: Job, layout: ParallelLayout, *, stage: int) -> int:
    """Passes of one chunk whose activations are alive at once on `stage`, at most."""
    return layout.order.in_flight(
        stage=stage,
        num_stages=layout.mesh.pp,
        num_microbatches=layout.microbatches(job),
        chunks=layout.num_chunks,
    )


def is_reduced(job: Job, layout: ParallelLayout) -> bool:
    """Whether some worker shares its gradients with another."""
    mesh = layout.mesh
    partial = mesh.tp > 1 and (layout.sequence_parallel or dims_of(job.model).kv_heads < mesh.tp or job.model.qk_norm)
    return mesh.dp > 1 or partial or (job.model.tie_embeddings and len(layout.layers) > 1)


def _counts(job: Job, tp: int) -> ParameterCount:
    return local_parameter_count(job.model, seq_len=job.seq_len, tp=tp)


def _head(job: Job, counted: ParameterCount, *, alone: bool) -> int:
    """The output matrix: its own, or the tied one's second copy at the other end of the pipeline."""
    if not job.model.tie_embeddings:
        return counted.head
    positions = job.seq_len * job.model.hidden_size if job.model.kind == "gpt2" else 0
    return 0 if alone else counted.embedding - positions


def _last(layout: ParallelLayout) -> int:
    return layout.stage_of(len(layout.layers) - 1)


def _activations(job: Job, layout: ParallelLayout, stage: int) -> float:
    """The largest chunk, as often as passes are in flight."""
    chunks = (_chunk_bytes(job, layout, layout.layers[chunk]) for chunk in layout.chunks_of(stage))
    return in_flight(job, layout, stage=stage) * max(chunks)


def _chunk_bytes(job: Job, layout: ParallelLayout, layers: tuple[int, int]) -> float:
    kinds = [layout.recompute_of(layer) for layer in range(*layers)]
    return sum(kinds.count(kind) * _layer(job, layout, kind) for kind in set(kinds))


def _layer(job: Job, layout: ParallelLayout, kind: RecomputeKind) -> float:
    return layer_activation_bytes(
        job, microbatch_size=layout.microbatch_size, tp=layout.mesh.tp, sequence_parallel=layout.sequence_parallel,
        recompute=kind,
    )  # fmt: skip


def _logits(job: Job, layout: ParallelLayout) -> float:
    """Logits in fp32, and the inputs of the last norm and of the output matrix, of each pass in flight."""
    tokens = layout.microbatch_size * job.seq_len
    vocab = -(-dims_of(job.model).vocab // layout.mesh.tp)
    own = tokens / layout.mesh.tp if layout.sequence_parallel else tokens
    one = FP32 * tokens * vocab + 2 * job.element_bytes * own * job.model.hidden_size
    most = in_flight(job, layout, stage=_last(layout))
    return one * (most if layout.num_chunks == 1 else min(most, layout.microbatches(job)))


def _boundary(job: Job, layout: ParallelLayout) -> float:
    return boundary_bytes(
        job, microbatch_size=layout.microbatch_size, tp=layout.mesh.tp, sequence_parallel=layout.sequence_parallel
    )


def _sent(layout: ParallelLayout, stage: int) -> int:
    """Tensors that a micro-batch makes this stage send: activations down and gradients up, chunk by chunk."""
    if layout.mesh.pp == 1:
        return 0
    end = len(layout.layers) - 1
    return sum((chunk < end) + (chunk > 0) for chunk in layout.chunks_of(stage))


def _boundary_log(job: Job, layout: ParallelLayout, stage: int) -> float:
    if not job.software.logs_boundaries:
        return 0.0
    return _sent(layout, stage) * layout.microbatches(job) * _boundary(job, layout)


def _buffers(job: Job, layout: ParallelLayout, stage: int, parameters: int) -> float:
    reduced = job.software.reduces_out_of_place and is_reduced(job, layout)
    receives = RECEIVES_AHEAD * min(_sent(layout, stage), 2) * _boundary(job, layout)
    again = _layer(job, layout, "none") if layout.recompute != "none" else 0.0
    return parameters * job.software.gradient_bytes * reduced + receives + again
