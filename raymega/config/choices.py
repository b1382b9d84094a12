"""Which values of one key fit all the others: what a refusal offers, and what a proposal picks from."""

from collections.abc import Iterable
from math import isqrt

from raymega.config.dims import default_ffn_size
from raymega.config.schema import Auto, Config

CHUNKS_OF: dict[str, tuple[int | None, ...]] = {
    "gpipe": (1, None), "1f1b": (1,), "interleaved": (2, None), "zb-h1": (1,), "zb-h2": (1,), "zb-v": (2,),
}  # fmt: skip
"""Chunks a stage by the name of a schedule, its own number first; None: any other too."""


def is_table(schedule: str) -> bool:
    """Whether a schedule is the name of a file with a table of actions."""
    return schedule.endswith(".csv")


def chunks(config: Config) -> int:
    """Chunks a stage in force; one where a table will say."""
    axes = config.parallelism
    return axes.chunks or CHUNKS_OF.get(axes.schedule, (1,))[0] or 1


def virtual_stages(config: Config) -> int | Auto:
    """Chunks of all stages; `auto` where the planner chooses, or a table says, how many there are."""
    pp = config.parallelism.pipeline_model_parallel_size
    return "auto" if pp == "auto" or is_table(config.parallelism.schedule) else pp * chunks(config)


def number(axis: int | Auto) -> int:
    """The size of an axis of the mesh; one, the least it can be, where the planner chooses."""
    return 1 if axis == "auto" else axis


def divisors(n: int) -> tuple[int, ...]:
    """Every whole number that divides `n`, ascending; beyond 10^12, those that need no factor above a million."""
    small = [d for d in range(1, min(isqrt(n), 10**6) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


def near(values: Iterable[int], wish: int, *, count: int = 3) -> tuple[int, ...]:
    """The `count` values nearest to `wish`, ascending; of two equally near, the smaller."""
    return tuple(sorted(sorted(values, key=lambda value: (abs(value - wish), value))[:count]))


def nearest_to(values: Iterable[int], wish: int) -> int:
    """The value nearest to `wish`; of two equally near, the smaller."""
    return near(values, wish, count=1)[0]


def kv_heads(config: Config) -> int:
    """Key/value heads in force."""
    return config.model.num_key_value_heads or config.model.num_attention_heads


def head_size(config: Config) -> int:
    """Elements of a head in force."""
    return config.model.head_size or config.model.hidden_size // config.model.num_attention_heads


def ffn_size(config: Config) -> int:
    """Inner size of the mlp in force."""
    return config.model.ffn_size or default_ffn_size(config.model)


def needs_even_heads(config: Config) -> bool:
    """Rotary positions turn pairs of elements of a head."""
    return config.model.kind == "llama"


def head_counts(config: Config) -> tuple[int, ...]:
    """Numbers of heads that cut hidden_size into whole heads, of even size where rotary positions need it."""
    hidden, pair = config.model.hidden_size, 2 if needs_even_heads(config) else 1
    return tuple(d for d in divisors(hidden) if hidden // d % pair == 0)


def tp_fits_kv_heads(kv: int, tp: int) -> bool:
    """Every shard gets whole kv heads, or every kv head whole shards (it is replicated over them)."""
    return kv % tp == 0 or tp % kv == 0


def tp_sizes(config: Config) -> tuple[int, ...]:
    """Tensor-parallel sizes that cut heads, kv heads and ffn (and, with sequence_parallel, the sequence) evenly."""
    model, sequence = config.model, config.data.seq_len if config.parallelism.sequence_parallel else 0
    if model.custom is not None:
        return tuple(t for t in range(1, 65) if sequence % t == 0)
    return tuple(
        t
        for t in divisors(model.num_attention_heads)
        if tp_fits_kv_heads(kv_heads(config), t) and ffn_size(config) % t == 0 and sequence % t == 0
    )


def batch_sizes(config: Config) -> tuple[int, ...]:
    """The nearest batch sizes that are whole micro-batches, at least one for each replica."""
    micro, wish = config.training.micro_batch_size, config.training.batch_size
    least = number(config.parallelism.data_parallel_size)
    return tuple(sorted({micro * max(least, wish // micro), micro * max(least, -(-wish // micro))}))


def even_batch_sizes(config: Config) -> tuple[int, ...]:
    """The nearest batch sizes that give each replica as many micro-batches as the others."""
    micro, wish = config.training.micro_batch_size, config.training.batch_size
    unit = micro * number(config.parallelism.data_parallel_size)
    return tuple(sorted({unit * max(1, wish // unit), unit * max(1, -(-wish // unit))}))


def micro_batch_sizes(config: Config) -> tuple[int, ...]:
    """Micro-batch sizes that divide the batch into at least one micro-batch for each replica."""
    batch, dp = config.training.batch_size, number(config.parallelism.data_parallel_size)
    return tuple(d for d in divisors(batch) if batch // d >= dp)


def balanced(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage as even as they go, the larger ones first."""
    return tuple(layers // stages + (stage < layers % stages) for stage in range(stages))
