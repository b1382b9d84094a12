"""Which part of a parameter one shard of a team holds: one table, by the kind of cut.

    cut        dim   parts                          tp=2, shard 1
    none       -     the whole, on every shard      [      whole      ]
    rows       0     tp equal parts                 [  .  |  #  ]
    columns    1     tp equal parts                 [  .  |  #  ]
    vocab      0     ceil(V / tp) rows, last short  [  .   | # ]
    q_heads    0     heads / tp whole heads         [ . . | # # ]
    kv_heads   0     likewise; with fewer heads than shards, tp / heads consecutive shards hold the same one

Boxes speak of the whole, unpadded tensor. What is allocated may be longer: a vocabulary's rows are rounded up, so that
kernels get aligned sizes; the padding is masked in the loss, stays zero, and is neither counted nor saved.
Sources: Shoeybi et al. 2019 (arXiv 1909.08053), section 3; kv heads: Pope et al. 2022 (arXiv 2211.05102), section 3.3.
"""

from raymega.errors import PlanError
from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box

VOCAB_ROW_MULTIPLE = 8  # rows allocated: 16 bytes of a 16-bit type, what tensor cores want


def local_box(spec: ParamSpec, *, tp: int, shard: int) -> Box:
    """The part of `spec` that `shard` holds, without padding; empty where the vocabulary ends before it."""
    if spec.cut == "none":
        return Box.whole(spec.shape)
    dim = 1 if spec.cut == "columns" else 0
    start, size = _range(spec, tp=tp, shard=shard, length=spec.shape[dim])
    offsets = tuple(start if d == dim else 0 for d in range(len(spec.shape)))
    return Box(offsets, tuple(size if d == dim else length for d, length in enumerate(spec.shape)))


def local_shape(spec: ParamSpec, *, tp: int) -> tuple[int, ...]:
    """What a shard allocates: the same on all shards, padding included; its valid part comes first."""
    if spec.cut != "vocab":
        return local_box(spec, tp=tp, shard=0).sizes
    rows = _ceil_div(_ceil_div(spec.shape[0], tp), VOCAB_ROW_MULTIPLE) * VOCAB_ROW_MULTIPLE
    return (rows, *spec.shape[1:])


def is_counted(spec: ParamSpec, *, tp: int, shard: int) -> bool:
    """Whether, of the shards that hold the same box, this is the one that counts: for the norm, and to be saved."""
    return shard % replicas(spec, tp=tp) == 0 and local_box(spec, tp=tp, shard=shard).num_elements > 0


def replicas(spec: ParamSpec, *, tp: int) -> int:
    """How many consecutive shards hold the same box."""
    if spec.cut == "none":
        return tp
    return max(1, tp // num_heads(spec)) if spec.cut == "kv_heads" else 1


def has_partial_grad(spec: ParamSpec, *, tp: int, sequence_parallel: bool) -> bool:
    """Whether each holder's gradient is only a part, to be summed over the holders before the optimizer.

    True for replicated kv heads (each shard sees its own queries), for parameters used on cut heads (q/k norm), and,
    under sequence parallelism, for everything that is not cut (each shard sees its own positions).
    """
    if replicas(spec, tp=tp) == 1:
        return False
    return spec.cut == "kv_heads" or spec.grad_parts == "always" or sequence_parallel


def num_heads(spec: ParamSpec) -> int:
    """Whole heads in dim 0 of a parameter that is cut by heads."""
    return spec.shape[0] // spec.head_size


def _range(spec: ParamSpec, *, tp: int, shard: int, length: int) -> tuple[int, int]:
    if spec.cut == "vocab":
        part = _ceil_div(length, tp)
        start = min(shard * part, length)
        return start, min(part, length - start)
    if spec.cut == "kv_heads" and num_heads(spec) < tp:
        _check_divides(spec, what="tp", number=tp, by=num_heads(spec))
        return shard * num_heads(spec) // tp * spec.head_size, spec.head_size
    unit = spec.head_size if spec.cut in ("q_heads", "kv_heads") else 1
    _check_divides(spec, what="heads" if unit > 1 else "its length", number=length // unit, by=tp)
    part = length // tp
    return shard * part, part


def _check_divides(spec: ParamSpec, *, what: str, number: int, by: int) -> None:
    if number % by:
        raise PlanError(f"{spec.name} cannot be cut over its team: {what} {number} is not a multiple of {by}.")


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
