"""What the planner may vary: every value that the config's rules let a user write, and no other.

axis              as the config says, or       free
tp                                             sizes that divide heads, kv heads and ffn, within one node
pp                                             1 .. layers
dp                                             whatever the devices have room for
micro-batch                                    divisors of the batch
schedule, chunks, recompute                    the words of the config's schema
optimizer                                      as the config says where it cuts it; else whole
"""

from dataclasses import dataclass
from typing import Any, Protocol, get_args

from raymega.config import choices
from raymega.config.schema import Config, ParallelismConfig
from raymega.mesh import Mesh
from raymega.plan.arranging import arranged
from raymega.plan.cluster import Cluster
from raymega.plan.parallel_layout import ParallelLayout, Recompute, recompute_of
from raymega.plan.plan import ShardOptimizer

MOST_CHUNKS = 4
LARGEST_MICROBATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Values of each choice; `dp` None: any. `schedules` are (name, chunks a stage)."""

    tp: tuple[int, ...]
    pp: tuple[int, ...]
    dp: tuple[int, ...] | None
    microbatch_sizes: tuple[int, ...]
    schedules: tuple[tuple[str, int], ...]
    sequence_parallel: tuple[bool, ...]
    recompute: tuple[Recompute, ...]
    shard_optimizer: tuple[ShardOptimizer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a trainer can do."""

    schedules: tuple[tuple[str, int], ...]
    recompute: tuple[Recompute, ...]
    shard_optimizer: tuple[ShardOptimizer, ...]


EVERYTHING = Features(
    schedules=(
        ("1f1b", 1),
        *(("interleaved", chunks) for chunks in range(2, MOST_CHUNKS + 1)),
        ("zb-h1", 1),
        ("zb-h2", 1),
        ("zb-v", 2),
    ),
    recompute=("none", "selective", "full"),
    shard_optimizer=("none", "zero1"),
)
"""What the models of memory and time know, whether this version runs it or not."""


def runnable() -> Features:
    """What this version can run: words of its config's schema. To cut the optimizer state is for the user to ask."""
    words = {name: _words(field.annotation) for name, field in ParallelismConfig.model_fields.items()}
    return Features(
        schedules=tuple(row for row in EVERYTHING.schedules if row[0] in words["schedule"]),
        recompute=tuple(kind for kind in EVERYTHING.recompute if kind in words.get("recompute", ("none",))),
        shard_optimizer=EVERYTHING.shard_optimizer[:1],
    )


def free_space(config: Config, *, cluster: Cluster, features: Features) -> Space:
    """Everything may vary, but for how the optimizer state is cut where the config asks for a cut."""
    without = config.model_copy(
        update={"parallelism": config.parallelism.model_copy(update={"sequence_parallel": False})}
    )
    batch, asked = config.training.batch_size, config.parallelism.shard_optimizer
    return Space(
        tp=tuple(size for size in choices.tp_sizes(without) if size <= cluster.largest),
        pp=tuple(range(1, min(config.model.num_layers, cluster.free) + 1)),
        dp=None,
        microbatch_sizes=tuple(size for size in choices.divisors(batch) if size <= LARGEST_MICROBATCH),
        schedules=features.schedules,
        sequence_parallel=(False, True),
        recompute=features.recompute,
        shard_optimizer=features.shard_optimizer if asked == "none" else (asked,),
    )


def asked_layout(config: Config) -> ParallelLayout | None:
    """The one layout that `config` asks for; None if it leaves an axis to the planner."""
    axes = config.parallelism
    dp, pp, tp = (axes.data_parallel_size, axes.pipeline_model_parallel_size, axes.tensor_model_parallel_size)
    if dp == "auto" or pp == "auto" or tp == "auto":
        return None
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    found = arranged(config, mesh)
    return ParallelLayout(
        mesh=mesh,
        layers=found.layers,
        microbatch_size=config.training.micro_batch_size,
        schedule=found.schedule,
        sequence_parallel=axes.sequence_parallel and tp > 1,
        recompute=recompute_of(config),
        shard_optimizer=axes.shard_optimizer,
        table=found.table,
    )


class Settings(Protocol):
    """What of a layout a config sets: of one whose layers are cut, or are still to be."""

    @property
    def mesh(self) -> Mesh: ...
    @property
    def microbatch_size(self) -> int: ...
    @property
    def schedule(self) -> str: ...
    @property
    def num_chunks(self) -> int: ...
    @property
    def sequence_parallel(self) -> bool: ...
    @property
    def recompute(self) -> Recompute: ...
    @property
    def shard_optimizer(self) -> ShardOptimizer: ...


def changes(asked: Settings, other: Settings) -> tuple[str, ...]:
    """The settings in which `other` differs, `name old -> new`."""
    rows = zip(_NAMES, _settings(asked), _settings(other), strict=True)
    return tuple(f"{name} {_word(old)} -> {_word(new)}" for name, old, new in rows if old != new)


_NAMES = (
    "data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "schedule",
    "chunks", "sequence_parallel", "recompute", "shard_optimizer",
)  # fmt: skip


def _settings(of: Settings) -> tuple[object, ...]:
    """The values of `_NAMES`."""
    mesh = of.mesh
    return (
        mesh.dp, mesh.tp, mesh.pp, of.microbatch_size, of.schedule, of.num_chunks, of.sequence_parallel, of.recompute,
        of.shard_optimizer,
    )  # fmt: skip


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(annotation: Any) -> tuple[str, ...]:  # Any: a type, or a union of types and literals
    """The literal words that a field's type allows."""
    found = list[str]()
    for part in get_args(annotation):
        found += [part] if isinstance(part, str) else _words(part)
    return tuple(found)
