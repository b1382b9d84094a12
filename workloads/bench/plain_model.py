"""The same decoder in plain PyTorch, written as well as its public operators allow; nothing of raymega in it.

RMSNorm, rotary positions, grouped-query attention through scaled_dot_product_attention, SwiGLU, cross entropy. Queries,
keys and values are one product, gate and up another. A stage of a pipeline is the same module with fewer parts.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of the model; `layers` are those that this stage holds, half-open. `bf16`: products, and what a stage sends."""

    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq_len: int
    eps: float
    theta: float
    tied: bool
    layers: tuple[int, int]
    is_first: bool
    is_last: bool
    bf16: bool


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_size = sizes.heads, sizes.kv_heads, sizes.hidden // sizes.heads
        self.qkv = nn.Linear(sizes.hidden, (sizes.heads + 2 * sizes.kv_heads) * self.head_size, bias=False)
        self.out = nn.Linear(sizes.hidden, sizes.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, -1, self.head_size).transpose(1, 2)  # [B, heads + 2 kv_heads, T, K]
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attn_norm, self.mlp_norm = (nn.RMSNorm(sizes.hidden, eps=sizes.eps) for _ in range(2))
        self.attn = Attention(sizes)
        self.gate_up = nn.Linear(sizes.hidden, 2 * sizes.ffn, bias=False)
        self.down = nn.Linear(sizes.ffn, sizes.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x), cos, sin)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class PlainDecoder(nn.Module):
    """The whole decoder, or one stage: ids or activations in, activations or logits out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed = nn.Embedding(sizes.vocab, sizes.hidden) if sizes.is_first else None
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(*sizes.layers))
        self.norm = nn.RMSNorm(sizes.hidden, eps=sizes.eps) if sizes.is_last else None
        self.head = nn.Linear(sizes.hidden, sizes.vocab, bias=False) if sizes.is_last else None
        if sizes.tied and self.head is not None and self.embed is not None:
            self.head.weight = self.embed.weight
        cos, sin = angles(sizes)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.sizes.bf16):
            if self.embed is not None:
                x = self.embed(x)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            if self.head is not None and self.norm is not None:
                return self.head(self.norm(x))
            return x.bfloat16() if self.sizes.bf16 else x

    @property
    def tied_weight(self) -> nn.Parameter | None:
        """The matrix of which the other end of the pipeline has a copy."""
        if not self.sizes.tied or self.sizes.is_first == self.sizes.is_last:
            return None
        end = self.embed if self.embed is not None else self.head
        assert end is not None, "one of the two ends"
        return end.weight


def angles(sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [T, K/2]."""
    head_size = sizes.hidden // sizes.heads
    rates = 1.0 / sizes.theta ** (torch.arange(0, head_size, 2).float() / head_size)
    turned = torch.outer(torch.arange(sizes.seq_len).float(), rates)
    return turned.cos(), turned.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, T, K], its halves turned."""
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


@torch.no_grad()
def fill(model: PlainDecoder, values: dict[str, Tensor]) -> None:
    """Take raymega's values by their global names."""
    if model.embed is not None:
        model.embed.weight.copy_(values["embed.tokens"])
    for layer, block in zip(range(*model.sizes.layers), model.blocks, strict=True):
        of = {name.removeprefix(f"layers.{layer}."): value for name, value in values.items()}
        block.attn_norm.weight.copy_(of["attn_norm.weight"])
        block.mlp_norm.weight.copy_(of["mlp_norm.weight"])
        block.attn.qkv.weight.copy_(torch.cat([of[f"attn.w{letter}"] for letter in "qkv"]))
        block.attn.out.weight.copy_(of["attn.wo"])
        block.gate_up.weight.copy_(torch.cat([of["mlp.gate"], of["mlp.up"]]))
        block.down.weight.copy_(of["mlp.down"])
    if model.norm is not None and model.head is not None:
        model.norm.weight.copy_(values["final_norm.weight"])
        model.head.weight.copy_(values["embed.tokens" if model.sizes.tied else "head.out"])
