"""What a model's parameters are, before anyone holds them: global name, shape, and how tensor parallelism cuts it.

Names say what a parameter is, on every stage, rank and plan: `embed.tokens`, `layers.7.attn.wq`, `head.out`.
"""

from dataclasses import dataclass
from typing import Literal

Cut = Literal["none", "rows", "columns", "vocab", "q_heads", "kv_heads"]
"""How tp cuts dim 0 (or, for `columns`, dim 1):
none      replicated over the team
rows      dim 0 in tp equal parts                          (column-parallel weight [out, in], its bias)
columns   dim 1 in tp equal parts                          (row-parallel weight [out, in])
vocab     dim 0 in tp parts of ceil(V / tp), the last short (embedding, output head)
q_heads   dim 0 by whole query heads
kv_heads  dim 0 by whole key/value heads, replicated where heads < tp
"""

Owner = Literal["first", "last", "both"] | int
"""Which stage holds it: the first, the last, both ends (tied embedding), or the stage of block i."""

InitKind = Literal["normal", "residual", "ones", "zeros"]

GradParts = Literal["sequence", "always"]
"""When a replicated parameter's gradient comes in parts, one on each shard:
sequence  only under sequence parallelism, where a shard sees its own positions (norms, row biases, learned positions)
always    it is used on cut heads, of which a shard sees its own (q/k norm)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamSpec:
    """One named tensor.

    Args:
        name: global name.
        shape: whole, unpadded shape, in elements.
        cut: how a team cuts it.
        owner: the block (an index), or the end of the pipeline that holds it.
        init: its first values.
        fan_in: inputs of the matrix, for schemes that scale by it.
        head_size: rows of one head, for cuts by heads.
        grad_parts: for cut `none`: when its gradient must be summed over the team.
    """

    name: str
    shape: tuple[int, ...]
    cut: Cut
    owner: Owner
    init: InitKind
    fan_in: int = 1
    head_size: int = 1
    grad_parts: GradParts = "sequence"

    @property
    def decays(self) -> bool:
        """Weight decay is for matrices only, judged by the whole tensor, never by a shard of it."""
        return len(self.shape) > 1
