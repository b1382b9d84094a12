"""Every parameter of a model under its global name, and which rank of a plan holds which box of it.

    embed.tokens
    layers.0.attn_norm.weight  layers.0.attn.wq wk wv wo  layers.0.mlp_norm.weight  layers.0.mlp.gate up down
    ...
    final_norm.weight  head.out

What is used in one matrix product stands together (wq wk wv; gate up), so that a stage can store it as one matrix.
Optimizer moments are held in the same boxes as their parameters. Where a plan cuts the optimizer state over replicas,
all of it is cut, parameters too: whole weights are made of the pieces, and are no state.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from raymega.config.dims import Dims, dims_of
from raymega.config.schema import ModelConfig
from raymega.layout.param_spec import Cut, Owner, ParamSpec
from raymega.layout.shard_box import Box
from raymega.layout.tp_split import is_counted, local_box
from raymega.plan.plan import Plan
from raymega.plan.shards import num_pieces, pieces_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A rank holds `box` of `name`.

    Args:
        counted: of the holders within one replica, this one counts for the norm and is saved. Each replica that holds
            the piece has one; distinct counted boxes cover every element of the model exactly once.
    """

    name: str
    box: Box
    counted: bool


def param_specs(model: ModelConfig, *, seq_len: int) -> tuple[ParamSpec, ...]:
    """All parameters of a llama or gpt2 model, in the order of the forward pass.

    Args:
        model: with `vocab_size` set.
        seq_len: longest sequence; learned positions have so many rows.
    """
    dims = dims_of(model)
    blocks = _llama_block if model.kind == "llama" else _gpt2_block
    specs = list(_embedding(model, dims=dims, seq_len=seq_len))
    for layer in range(dims.layers):
        specs.extend(blocks(model, dims=dims, layer=layer))
    specs.extend(_norm(model, name="final_norm", owner="last", size=dims.hidden))
    if not model.tie_embeddings:
        specs.append(_vocab_matrix("head.out", dims=dims, owner="last", fan_in=dims.hidden))
    return tuple(specs)


def specs_of_stage(
    specs: Iterable[ParamSpec], *, layers: tuple[int, int], first: bool, last: bool
) -> tuple[ParamSpec, ...]:
    """Those that the virtual stage with the blocks `layers` (half-open) holds, in the same order."""
    return tuple(spec for spec in specs if _is_held(spec.owner, layers=layers, first=first, last=last))


def stage_specs(specs: Iterable[ParamSpec], plan: Plan, virtual_stage: int) -> tuple[ParamSpec, ...]:
    """Those that `virtual_stage` of `plan` holds, in the same order."""
    end = len(plan.layers) - 1
    return specs_of_stage(specs, layers=plan.layers[virtual_stage], first=virtual_stage == 0, last=virtual_stage == end)


def holdings(specs: Iterable[ParamSpec], plan: Plan) -> tuple[tuple[Holding, ...], ...]:
    """What each rank of `plan` holds, by rank, nothing in lost teams; chunk by chunk, in the order of `specs`."""
    specs = tuple(specs)
    living = {rank for place in plan.teams for rank in plan.team(*place)}
    return tuple(
        tuple(_holdings_of(specs, plan=plan, rank=rank)) if rank in living else () for rank in range(plan.mesh.size)
    )


def piece_box(box: Box, *, piece: int, pieces: int) -> Box | None:
    """The rows of a shard's box that belong to a piece, as many for each, within one; None if it has none.

    >>> [str(piece_box(Box.parse("4:11,0:6"), piece=piece, pieces=3)) for piece in range(3)]
    ['4:6,0:6', '6:8,0:6', '8:11,0:6']
    """
    if not box.sizes:
        return box if piece == 0 else None
    rows = box.sizes[0]
    found = box.rows(rows * piece // pieces, rows * (piece + 1) // pieces)
    return found if found.num_elements else None


def is_tied(specs: Iterable[ParamSpec]) -> bool:
    """Whether some parameter is held by both ends of the pipeline."""
    return any(spec.owner == "both" for spec in specs)


def _holdings_of(specs: tuple[ParamSpec, ...], *, plan: Plan, rank: int) -> Iterable[Holding]:
    coord, tp = plan.mesh.coord(rank), plan.mesh.tp
    pieces = num_pieces(plan, stage=coord.stage)
    held = pieces_of(plan, replica=coord.replica, stage=coord.stage)
    for virtual_stage in plan.chunks_of(coord.stage):
        for spec in stage_specs(specs, plan, virtual_stage):
            local = local_box(spec, tp=tp, shard=coord.shard)
            copy = spec.owner == "both" and virtual_stage > 0  # the first stage's copy of a tied matrix counts
            counted = is_counted(spec, tp=tp, shard=coord.shard) and not copy
            for piece in held:
                box = piece_box(local, piece=piece, pieces=pieces)
                if box is not None:
                    yield Holding(name=spec.name, box=box, counted=counted)


def _is_held(owner: Owner, *, layers: tuple[int, int], first: bool, last: bool) -> bool:
    if isinstance(owner, int):
        return layers[0] <= owner < layers[1]
    return (first and owner in ("first", "both")) or (last and owner in ("last", "both"))


def _embedding(model: ModelConfig, *, dims: Dims, seq_len: int) -> Iterable[ParamSpec]:
    if model.tie_embeddings:
        yield _vocab_matrix("embed.tokens", dims=dims, owner="both", fan_in=dims.hidden)
    else:
        yield _vocab_matrix("embed.tokens", dims=dims, owner="first", fan_in=1)  # one row is looked up
    if model.kind == "gpt2":
        yield ParamSpec(
            name="embed.positions", shape=(seq_len, dims.hidden), cut="none", owner="first", init="normal", fan_in=1
        )


def _vocab_matrix(name: str, *, dims: Dims, owner: Owner, fan_in: int) -> ParamSpec:
    return ParamSpec(name=name, shape=(dims.vocab, dims.hidden), cut="vocab", owner=owner, init="normal", fan_in=fan_in)


def _norm(model: ModelConfig, *, name: str, owner: Owner, size: int) -> Iterable[ParamSpec]:
    yield ParamSpec(name=f"{name}.weight", shape=(size,), cut="none", owner=owner, init="ones")
    if model.kind == "gpt2":
        yield ParamSpec(name=f"{name}.bias", shape=(size,), cut="none", owner=owner, init="zeros")


def _heads(name: str, *, dims: Dims, layer: int) -> ParamSpec:
    """The matrix that makes queries, keys or values."""
    cut: Cut = "q_heads" if name == "wq" else "kv_heads"
    heads = dims.heads if name == "wq" else dims.kv_heads
    return ParamSpec(
        name=f"layers.{layer}.attn.{name}", shape=(heads * dims.head_size, dims.hidden), cut=cut, owner=layer,
        init="normal", fan_in=dims.hidden, head_size=dims.head_size,
    )  # fmt: skip


def _rows(name: str, *, layer: int, rows: int, columns: int) -> ParamSpec:
    return ParamSpec(
        name=f"layers.{layer}.{name}", shape=(rows, columns), cut="rows", owner=layer, init="normal", fan_in=columns
    )


def _columns(name: str, *, layer: int, rows: int, columns: int) -> ParamSpec:
    """A matrix whose output is added to the residual stream."""
    return ParamSpec(
        name=f"layers.{layer}.{name}", shape=(rows, columns), cut="columns", owner=layer, init="residual",
        fan_in=columns,
    )  # fmt: skip


def _bias_of(matrix: ParamSpec, *, name: str) -> ParamSpec:
    """Cut like the rows of its matrix; a row-parallel matrix's bias is whole, and added after the sum."""
    return ParamSpec(
        name=name, shape=matrix.shape[:1], cut="none" if matrix.cut == "columns" else matrix.cut, owner=matrix.owner,
        init="zeros", head_size=matrix.head_size,
    )  # fmt: skip


def _llama_block(model: ModelConfig, *, dims: Dims, layer: int) -> Iterable[ParamSpec]:
    width = dims.heads * dims.head_size
    yield from _norm(model, name=f"layers.{layer}.attn_norm", owner=layer, size=dims.hidden)
    for name in ("wq", "wk", "wv"):
        yield _heads(name, dims=dims, layer=layer)
    for name in ("q_norm", "k_norm") if model.qk_norm else ():
        yield ParamSpec(
            name=f"layers.{layer}.attn.{name}", shape=(dims.head_size,), cut="none", owner=layer, init="ones",
            grad_parts="always",
        )  # fmt: skip
    yield _columns("attn.wo", layer=layer, rows=dims.hidden, columns=width)
    yield from _norm(model, name=f"layers.{layer}.mlp_norm", owner=layer, size=dims.hidden)
    yield _rows("mlp.gate", layer=layer, rows=dims.ffn, columns=dims.hidden)
    yield _rows("mlp.up", layer=layer, rows=dims.ffn, columns=dims.hidden)
    yield _columns("mlp.down", layer=layer, rows=dims.hidden, columns=dims.ffn)


def _gpt2_block(model: ModelConfig, *, dims: Dims, layer: int) -> Iterable[ParamSpec]:
    at = f"layers.{layer}"
    qkv = [_heads(name, dims=dims, layer=layer) for name in ("wq", "wk", "wv")]
    out = _columns("attn.wo", layer=layer, rows=dims.hidden, columns=dims.heads * dims.head_size)
    up = _rows("mlp.up", layer=layer, rows=dims.ffn, columns=dims.hidden)
    down = _columns("mlp.down", layer=layer, rows=dims.hidden, columns=dims.ffn)
    yield from _norm(model, name=f"{at}.attn_norm", owner=layer, size=dims.hidden)
    yield from qkv
    yield from (_bias_of(matrix, name=f"{at}.attn.b{letter}") for letter, matrix in zip("qkv", qkv, strict=True))
    yield out
    yield _bias_of(out, name=f"{at}.attn.bo")
    yield from _norm(model, name=f"{at}.mlp_norm", owner=layer, size=dims.hidden)
    yield from (up, _bias_of(up, name=f"{at}.mlp.up_bias"))
    yield from (down, _bias_of(down, name=f"{at}.mlp.down_bias"))
