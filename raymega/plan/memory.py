"""Bytes that a device needs, by stage and by kind: does a layout fit, and which part does not?

    n parameters on a shard    e bytes an element    m micro-batches    i of them in flight under the schedule

    weights        n e
    gradients      n 4          accumulated in fp32
    masters        n 4          where weights are of 16 bits, or the optimizer is sharded
    moments        n 8          adamw
    activations    i x what the stage's layers keep (`plan.activations`)
    logits         the last stage's, fp32, of each micro-batch in flight there, and what the head reads
    boundary log   m x (activation down + gradient up): what was sent is kept until the step is committed, here or in
                   the host's memory
    buffers        the reduced gradients n 4, receives posted ahead and in use, one layer under recomputation; with
                   compression what it has not sent, before and after the step, 2 n 4, and dp + 1 messages
    peer copies    2 x what is kept of masters and moments: the worker's own, and of as many others as replicas lack

Where backwards are in two parts, a pass whose second part is to come keeps inputs and output gradients of its products.

Copies lie in the memory of hosts: on CPUs that is the devices' own. Two of each, so that one is always whole.
Parameters and what belongs to each are of `plan.stage_state`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from raymega.pipeline.catalog import Schedule, schedule
from raymega.pipeline.held import most_held
from raymega.plan.activations import FP32, RecomputeKind, boundary_bytes, layer_activation_bytes, owed_layer_bytes
from raymega.plan.job import Job
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.stage_state import optimizer_share, stage_parameters, stage_state

RECEIVES_AHEAD = 2  # as `comm.p2p.Inbox` posts them
ROUNDS = 4  # of a pipeline, within which a schedule has reached all that it ever holds
COPY_SLOTS = 2  # of each copy, as `worker.copy_slots` has them

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each device of a stage, by kind; `host_copies`: beside it, in its host's memory."""

    weights: float
    gradients: float
    masters: float
    moments: float
    activations: float
    logits: float
    boundary_log: float
    buffers: float
    peer_copies: float
    host_copies: float

    @property
    def total(self) -> float:
        """On the device."""
        return sum(self.by_kind.values())

    @property
    def by_kind(self) -> dict[str, float]:
        """Kind -> bytes on the device, in the order above."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "host_copies"}

    @property
    def largest_kind(self) -> str:
        """What takes most."""
        kinds = self.by_kind
        return max(kinds, key=lambda name: kinds[name]).replace("_", " ")


def memory_by_stage(job: Job, layout: ParallelLayout) -> tuple[StageMemory, ...]:
    """What each stage's devices need."""
    case = _case(job, layout)
    return tuple(_stage_memory(case, stage) for stage in range(layout.mesh.pp))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A job and its layout, with what every stage asks for.

    Args:
        layer: bytes of activations of one layer and micro-batch, by what is recomputed.
        boundary: bytes of one message between stages.
    """

    job: Job
    layout: ParallelLayout
    order: Schedule
    microbatches: int
    layer: Mapping[RecomputeKind, float]
    boundary: float


def _case(job: Job, layout: ParallelLayout) -> _Case:
    tp, micro, cut = layout.mesh.tp, layout.microbatch_size, layout.sequence_parallel
    again = "full" if isinstance(layout.recompute, frozenset) else layout.recompute
    return _Case(
        job=job,
        layout=layout,
        order=layout.order,
        microbatches=layout.microbatches(job),
        layer={
            kind: layer_activation_bytes(job, microbatch_size=micro, tp=tp, sequence_parallel=cut, recompute=kind)
            for kind in dict.fromkeys(("none", again))
        },
        boundary=boundary_bytes(job, microbatch_size=micro, tp=tp, sequence_parallel=cut),
    )


def _stage_memory(case: _Case, stage: int) -> StageMemory:
    job, layout = case.job, case.layout
    state, copies = stage_state(job, layout, stage=stage), _copies(job, layout, stage)
    return StageMemory(
        weights=state.weights,
        gradients=state.gradients,
        masters=state.masters,
        moments=state.moments,
        activations=_activations(case, stage),
        logits=_logits(case) if stage == _last(layout) else 0.0,
        boundary_log=_boundary_log(case, stage),
        buffers=_buffers(case, stage, state.parameters),
        peer_copies=copies if job.copies_on_device else 0.0,
        host_copies=0.0 if job.copies_on_device else copies,
    )


def is_reduced(job: Job, layout: ParallelLayout) -> bool:
    """Whether some worker shares its gradients with another."""
    mesh = layout.mesh
    partial = mesh.tp > 1 and (layout.sequence_parallel or job.dims.kv_heads < mesh.tp or job.model.qk_norm)
    return mesh.dp > 1 or partial or (job.model.tie_embeddings and len(layout.layers) > 1)


def _last(layout: ParallelLayout) -> int:
    return layout.stage_of(len(layout.layers) - 1)


def _activations(case: _Case, stage: int) -> float:
    """The largest chunk, as often as passes are in flight."""
    chunks = [case.layout.layers[chunk] for chunk in case.layout.chunks_of(stage)]
    kept, (first, end) = max(((_chunk_bytes(case, at), at) for at in chunks), key=lambda found: found[0])
    most = _in_flight(case, stage) * kept
    if not case.order.splits:
        return most
    layout = case.layout
    owed = (end - first) * owed_layer_bytes(
        case.job, microbatch_size=layout.microbatch_size, tp=layout.mesh.tp, sequence_parallel=layout.sequence_parallel
    )
    owed += case.boundary  # the buffer that its input came in
    if owed <= kept:
        return most
    return max(num_open * kept + num_owed * owed for num_open, num_owed in _held(case, stage))


def _held(case: _Case, stage: int, *, chunk: int | None = None) -> Pairs:
    """(open, owed) passes of a stage, or of one of its chunks, beyond which it never has more."""
    layout, count = case.layout, case.microbatches
    few = count if layout.table else min(count, ROUNDS * layout.mesh.pp)  # beyond, it holds no more than within them
    return _held_by(layout.schedule, layout.table, stage, layout.mesh.pp, layout.num_chunks, few, chunk)


@cache
def _held_by(
    name: str, table: tuple[str, ...], stage: int, num_stages: int, chunks: int, num_microbatches: int,
    chunk: int | None,
) -> Pairs:  # fmt: skip
    row, microbatches = schedule(name, rows=table), tuple(range(num_microbatches))
    program = row.program(stage=stage, num_stages=num_stages, microbatches=microbatches, chunks=chunks)
    return most_held(tuple(action for action in program if chunk in (None, action.stage)))


def _chunk_bytes(case: _Case, layers: tuple[int, int]) -> float:
    again = case.layout.recompute
    if not isinstance(again, frozenset):
        return (layers[1] - layers[0]) * case.layer[again]
    full = len(again.intersection(range(*layers)))
    return full * case.layer["full"] + (layers[1] - layers[0] - full) * case.layer["none"]


def _logits(case: _Case) -> float:
    """Logits in fp32, and the inputs of the last norm and of the output matrix, of each pass in flight."""
    job, layout = case.job, case.layout
    tokens = layout.microbatch_size * job.seq_len
    vocab = -(-job.dims.vocab // layout.mesh.tp)
    own = tokens / layout.mesh.tp if layout.sequence_parallel else tokens
    one = FP32 * tokens * vocab + 2 * job.element_bytes * own * job.model.hidden_size
    last = _last(layout)
    if layout.num_chunks == 1:
        return one * _in_flight(case, last)
    return one * max(map(sum, _held(case, last, chunk=len(layout.layers) - 1)))


def _in_flight(case: _Case, stage: int) -> int:
    """Passes of one chunk whose activations are alive at once on `stage`, at most."""
    layout = case.layout
    if layout.in_flight:
        return min(layout.in_flight[stage], case.microbatches)
    return case.order.in_flight(
        stage=stage, num_stages=layout.mesh.pp, num_microbatches=case.microbatches, chunks=layout.num_chunks
    )


def _boundary_log(case: _Case, stage: int) -> float:
    """Tensors that a micro-batch makes this stage send, activations down and gradients up, chunk by chunk."""
    job = case.job
    if not (job.software.logs_boundaries and job.logs_on_device) or case.layout.mesh.pp == 1:
        return 0.0
    end = len(case.layout.layers) - 1
    sent = sum((chunk < end) + (chunk > 0) for chunk in case.layout.chunks_of(stage))
    return sent * case.microbatches * case.boundary


def receive_bytes(job: Job, layout: ParallelLayout, *, stage: int) -> float:
    """Buffers of messages that are posted ahead, and of the gradient in use; what comes down counts as activations."""
    if layout.mesh.pp == 1:
        return 0.0
    takes_gradients = any(chunk < len(layout.layers) - 1 for chunk in layout.chunks_of(stage))
    return (RECEIVES_AHEAD + takes_gradients) * boundary_bytes(
        job, microbatch_size=layout.microbatch_size, tp=layout.mesh.tp, sequence_parallel=layout.sequence_parallel
    )


def _copies(job: Job, layout: ParallelLayout, stage: int) -> float:
    """Where each replica is on nodes of its own; those of another stage are the largest that there is."""
    dp = layout.mesh.dp
    pieces, holders = {"none": (1, dp), "zero1": (dp, 1), "mirrored": (dp, min(2, dp))}[layout.shard_optimizer]
    lacking = max(0, job.outlives + 1 - holders) if job.outlives is not None else 0
    if not lacking:
        return 0.0
    bytes_each = FP32 * (3 if job.optimizer == "adamw" else 1) * optimizer_share(layout)
    sizes = [stage_parameters(job, layout, stage=other) * bytes_each for other in range(layout.mesh.pp)]
    others = [size for other, size in enumerate(sizes) if other != stage] or sizes
    return float(COPY_SLOTS * (sizes[stage] + -(-lacking * pieces // dp) * max(others)))


def _buffers(case: _Case, stage: int, parameters: int) -> float:
    job, layout = case.job, case.layout
    reduced = job.software.reduces_out_of_place and is_reduced(job, layout)
    receives = receive_bytes(job, layout, stage=stage)
    again = case.layer["none"] if layout.recompute != "none" else 0.0
    return parameters * (job.software.gradient_bytes * reduced + _coded(job, layout)) + receives + again


def _coded(job: Job, layout: ParallelLayout) -> float:
    """Bytes an element that compression takes."""
    if job.grad_compression == "none" or layout.mesh.dp == 1:
        return 0.0
    return 2 * FP32 + (layout.mesh.dp + 1) * {"int8": 1 + FP32 / 256, "bf16": 2, "fp16": 2}[job.grad_compression]
