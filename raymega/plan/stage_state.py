"""What a stage holds whatever passes through it: parameters, and the bytes of state that belong to them.

    n parameters on a shard    e bytes an element

    weights        n e
    gradients      n 4          accumulated in fp32
    masters        n 4          where weights are of 16 bits, or the optimizer is sharded
    moments        n 8          adamw

zero1 divides masters and moments by dp; mirrored holds them twice. Parameters are counted as `layout` cuts them, on the
first shard, which holds most.
"""

from dataclasses import dataclass
from functools import lru_cache

from raymega.model_shape import ParameterCount, local_parameter_count
from raymega.plan.activations import FP32
from raymega.plan.job import Job
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.plan import ShardOptimizer

COUNTS_KEPT = 64  # of jobs and team sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """Elements, and bytes by kind, on each device of a stage."""

    parameters: int
    weights: float
    gradients: float
    masters: float
    moments: float

    @property
    def total(self) -> float:
        """Bytes."""
        return self.weights + self.gradients + self.masters + self.moments


def stage_state(job: Job, layout: ParallelLayout, *, stage: int) -> StageState:
    """What a device of `stage` holds."""
    parameters = stage_parameters(job, layout, stage=stage)
    optimizer_states = parameters * optimizer_share(layout)
    return StageState(
        parameters=parameters,
        weights=parameters * job.element_bytes,
        gradients=parameters * job.software.gradient_bytes,
        masters=optimizer_states * (FP32 if has_masters(job, shard=layout.shard_optimizer) else 0),
        moments=optimizer_states * (2 * FP32 if job.optimizer == "adamw" else 0),
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
    """The part of masters and moments that one replica of `layout` holds."""
    return share_of_state(layout.shard_optimizer, dp=layout.mesh.dp)


def share_of_state(shard: ShardOptimizer, *, dp: int) -> float:
    """The part of masters and moments that one of `dp` replicas holds."""
    return {"none": 1.0, "zero1": 1 / dp, "mirrored": min(1.0, 2 / dp)}[shard]


def has_masters(job: Job, *, shard: ShardOptimizer) -> bool:
    """A shard has fp32 values of its own: the whole weights of any precision are made of them."""
    return job.precision != "fp32" or shard != "none"


@lru_cache(maxsize=COUNTS_KEPT)
def _counts(job: Job, tp: int) -> ParameterCount:
    return local_parameter_count(job.model, seq_len=job.seq_len, tp=tp)


def _head(job: Job, counted: ParameterCount, *, alone: bool) -> int:
    """The output matrix: its own, or the tied one's second copy at the other end of the pipeline."""
    if not job.model.tie_embeddings:
        return counted.head
    positions = job.seq_len * job.model.hidden_size if job.model.kind == "gpt2" else 0
    return 0 if alone else counted.embedding - positions
