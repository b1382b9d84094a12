"""Causal self-attention, cut over the team by heads.

    x --f--> [wq | wk | wv] x   one column-parallel product            shard s: its heads / tp query heads, and the
               |    |    |                                             kv heads that these read
            (norm)(norm) |      RMSNorm on each head (q/k norm)
            rotary rotary|      llama only
               softmax(q k' / sqrt(K)) v        grouped: heads / kv_heads queries read one kv head
    y <--g-- wo             row-parallel

With fewer kv heads than shards, neighbouring shards hold the same kv head; its gradient is the sum over them.
Softmax is in fp32. Sources: Vaswani et al. 2017 (arXiv 1706.03762); Ainslie et al. 2023 (arXiv 2305.13245).
"""

from collections.abc import Callable

from torch import Tensor

from raymega.model.attend import attend
from raymega.model.flat_params import FlatParams
from raymega.model.norms import rms_norm
from raymega.model.recompute import recomputed
from raymega.model.rotary import RotaryTable, rotate, split_and_rotate
from raymega.model.tp_linear import column_linear, row_linear
from raymega.model.tp_team import Team

Heads = Callable[[Tensor, int, int], tuple[Tensor, Tensor, Tensor]]
"""Splits [B, T, heads + 2 kv_heads, K], given heads and kv_heads, into queries, keys and values, ready to meet."""


class Attention:
    """`name`.wq wk wv wo, with biases bq bk bv bo or without."""

    def __init__(
        self, *, flat: FlatParams, name: str, head_size: int, biases: bool, split: Heads, team: Team,
        again: bool = False,
    ) -> None:  # fmt: skip
        self.qkv = flat.weight(*(f"{name}.w{letter}" for letter in "qkv"))  # [(heads + 2 kv_heads) K, D], local heads
        self.out = flat.weight(f"{name}.wo")  # [D, heads K]
        self.qkv_bias = flat.weight(*(f"{name}.b{letter}" for letter in "qkv")) if biases else None
        self.out_bias = flat.weight(f"{name}.bo") if biases else None
        self.num_heads, self.num_kv_heads = (
            flat.param(f"{name}.w{letter}").shape[0] // head_size for letter in ("q", "k")
        )
        self.head_size, self.split, self.team = head_size, split, team
        self.again = flat.grads if again else None

    def __call__(self, x: Tensor) -> Tensor:
        keys = slice(self.num_heads * self.head_size, (self.num_heads + self.num_kv_heads) * self.head_size)
        # A bias of the keys adds the same to all scores of a query, and softmax cancels it: what a sum of gradients
        # leaves of it is rounding, which Adam would blow up to full steps that differ by layout.
        qkv = column_linear(x, weight=self.qkv, bias=self.qkv_bias, team=self.team, still=keys)
        mixed = self._core(qkv) if self.again is None else recomputed(qkv, self._core, grads=self.again)
        return row_linear(mixed, weight=self.out, bias=self.out_bias, team=self.team)

    def _core(self, qkv: Tensor) -> Tensor:
        """[B, T, (heads + 2 kv_heads) K] -> [B, T, heads K]: what selective recomputation computes again."""
        batch, length, _ = qkv.shape
        heads = qkv.view(batch, length, -1, self.head_size)  # [B, T, heads + 2 kv_heads, K]
        q, k, v = self.split(heads, self.num_heads, self.num_kv_heads)
        mixed = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))  # [B, heads, T, K]
        return mixed.transpose(1, 2).reshape(batch, length, -1)


def plain_heads(heads: Tensor, num_heads: int, num_kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """GPT-2: positions are in the input already."""
    q, k, v = heads.split([num_heads, num_kv_heads, num_kv_heads], dim=2)
    return q, k, v


class RotaryHeads:
    """Llama: queries and keys are turned by position, after an RMSNorm of each head where there are norm weights."""

    def __init__(self, *, table: RotaryTable, norms: tuple[Tensor, Tensor] | None, eps: float) -> None:
        self.table, self.norms, self.eps = table, norms, eps

    def __call__(self, heads: Tensor, num_heads: int, num_kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
        cos, sin = self.table(heads.shape[1])
        if self.norms is None:
            return split_and_rotate(heads, num_heads=num_heads, num_kv_heads=num_kv_heads, cos=cos, sin=sin)
        q, k, v = plain_heads(heads, num_heads, num_kv_heads)
        q, k = (rms_norm(x, weight=weight, eps=self.eps) for x, weight in zip((q, k), self.norms, strict=True))
        return rotate(q, cos=cos, sin=sin), rotate(k, cos=cos, sin=sin), v
