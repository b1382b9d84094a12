"""One way to lay a job over devices, before any device is named: what the models of memory and time judge.

    dp=16 tp=8 pp=12    layers 8 8 8 ..    micro-batches of 10    1f1b    recompute none    optimizer whole

A `Plan` is a layout whose ranks have workers. What a plan does not say yet is at its default.
"""

from dataclasses import dataclass

from raymega.config.fault import counted
from raymega.config.schema import Config, ModelConfig
from raymega.mesh import Mesh
from raymega.pipeline.catalog import Schedule, schedule
from raymega.pipeline.placing import stage_of, virtual_stages_on
from raymega.plan.activations import RecomputeKind
from raymega.plan.job import Job
from raymega.plan.plan import Plan, ShardOptimizer
from raymega.plan.stages import Layers

Recompute = RecomputeKind | frozenset[int]
"""Of the forward, in the backward: nothing, attention's core, everything, or everything of these layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLayout:
    """See above.

    Args:
        layers: (first, end) of each virtual stage.
        table, in_flight: as a plan's.
    """

    mesh: Mesh
    layers: Layers
    microbatch_size: int
    schedule: str = "1f1b"
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    shard_optimizer: ShardOptimizer = "none"
    table: tuple[str, ...] = ()
    in_flight: tuple[int, ...] = ()

    @property
    def num_chunks(self) -> int:
        return len(self.layers) // self.mesh.pp

    @property
    def order(self) -> Schedule:
        """The schedule that its name, or its table, stands for."""
        return schedule(self.schedule, rows=self.table)

    def stage_of(self, virtual_stage: int) -> int:
        """The stage on which a virtual stage lives."""
        return stage_of(virtual_stage, num_stages=self.mesh.pp, folds=self.order.folds)

    def chunks_of(self, stage: int) -> tuple[int, ...]:
        """The virtual stages on `stage`, ascending."""
        if self.num_chunks == 1:
            return (stage,)
        return virtual_stages_on(stage, num_stages=self.mesh.pp, chunks=self.num_chunks, folds=self.order.folds)

    def recompute_of(self, layer: int) -> RecomputeKind:
        if isinstance(self.recompute, frozenset):
            return "full" if layer in self.recompute else "none"
        return self.recompute

    def microbatches(self, job: Job) -> int:
        """Micro-batches of the replica that has most of them."""
        return -(-job.batch_size // (self.microbatch_size * self.mesh.dp))

    def __str__(self) -> str:
        """`dp=16 tp=8 pp=12, micro-batch 10, 1f1b, sequence parallel`: what differs from the default is named."""
        parts = [str(self.mesh), f"micro-batch {self.microbatch_size}", self.schedule]
        parts += [counted(self.num_chunks, noun="chunk")] if self.num_chunks > 1 else []
        parts += ["sequence parallel"] if self.sequence_parallel else []
        kind = "of some layers" if isinstance(self.recompute, frozenset) else self.recompute
        parts += [f"recompute {kind}"] if self.recompute != "none" else []
        parts += [f"optimizer {self.shard_optimizer}"] if self.shard_optimizer != "none" else []
        return ", ".join(parts)


def parts_cost_nothing(model: ModelConfig, *, tp: int, recompute: Recompute) -> bool:
    """Whether a backward in two parts takes no more seconds, and at no time more bytes, than a whole one.

    Not so with a team, whose collectives travel beside the products for weights; nor where layers are computed again,
    which leave less than what those products read; nor in a user's own model, of whose weights autograd may make the
    gradients, to be kept until they are added.
    """
    return tp == 1 and recompute == "none" and model.custom is None


def layout_of(plan: Plan, *, recompute: Recompute = "none") -> ParallelLayout:
    """The layout of a plan, without its workers and routes; what is recomputed its config says."""
    return ParallelLayout(
        mesh=plan.mesh,
        layers=plan.layers,
        microbatch_size=plan.microbatch_size,
        schedule=plan.schedule,
        sequence_parallel=plan.sequence_parallel,
        table=plan.table,
        shard_optimizer=plan.shard_optimizer,
        recompute=recompute,
        in_flight=plan.in_flight,
    )


def recompute_of(config: Config) -> Recompute:
    """What `config` has computed again."""
    again = config.parallelism.recompute
    return again if isinstance(again, str) else frozenset(again)
