"""Rotary positions: queries and keys are turned by angles that grow with the position.

    (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin),   x1, x2: the two halves of a head
    angle of pair i at position t: t theta^(-2 i / head_size)

Halves, not neighbours, form the pairs: the layout of Hugging Face's Llama, so that its matrices are used as they are.
Source: Su et al. 2021 (arXiv 2104.09864).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class RotaryTable:
    """Cosines and sines, made for the longest sequence seen."""

    def __init__(self, *, head_size: int, theta: float, device: torch.device) -> None:
        powers = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
        self._rates = (1.0 / theta**powers).to(device)  # [K/2]
        self._cos_sin = self._make(0)

    def __call__(self, num_positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions 0 .. num_positions - 1, each [T, 1, K/2]."""
        if num_positions > self._cos_sin[0].shape[0]:
            self._cos_sin = self._make(num_positions)
        cos, sin = self._cos_sin
        return cos[:num_positions], sin[:num_positions]

    def _make(self, num_positions: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(num_positions, device=self._rates.device).float()
        angles = torch.outer(positions, self._rates)[:, None, :]
        return angles.cos(), angles.sin()


def rotate(x: Tensor, *, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the heads of x [B, T, heads, K]."""
    return _Rotate.apply(x, cos, sin)


def split_and_rotate(
    qkv: Tensor, *, num_heads: int, num_kv_heads: int, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """[B, T, heads + 2 kv_heads, K] -> queries and keys, turned, and values; backward fills one gradient for all."""
    return _SplitAndRotate.apply(qkv, num_heads, num_kv_heads, cos, sin)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, *, out: Tensor, sign: float) -> Tensor:
    """Turn `x` by sign x angle into `out`, which may be a slice; in fp32, whatever the format of x."""
    if x.dtype != torch.float32:
        return out.copy_(_turn(x.float(), cos, sin, out=torch.empty_like(x, dtype=torch.float32), sign=sign))
    (x1, x2), (out1, out2) = x.chunk(2, dim=-1), out.chunk(2, dim=-1)
    torch.mul(x1, cos, out=out1).addcmul_(x2, sin, value=-sign)
    torch.mul(x2, cos, out=out2).addcmul_(x1, sin, value=sign)
    return out


def _room(x: Tensor, *, heads: int) -> Tensor:
    batch, length, _, head_size = x.shape
    return torch.empty(batch, length, heads, head_size, dtype=x.dtype, device=x.device)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.cos, ctx.sin = cos, sin
        return _turn(x, cos, sin, out=_room(x, heads=x.shape[2]), sign=1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return _turn(dy, ctx.cos, ctx.sin, out=_room(dy, heads=dy.shape[2]), sign=-1.0), None, None


class _SplitAndRotate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, num_heads: int, num_kv_heads: int, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.num_heads, ctx.num_turned, ctx.cos, ctx.sin = num_heads, num_heads + num_kv_heads, cos, sin
        turned = _turn(qkv[:, :, : ctx.num_turned], cos, sin, out=_room(qkv, heads=ctx.num_turned), sign=1.0)
        return turned[:, :, :num_heads], turned[:, :, num_heads:], qkv[:, :, ctx.num_turned :]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, None, None, None, None]:
        dqkv = _room(dq, heads=ctx.num_turned + dv.shape[2])
        _turn(dq, ctx.cos, ctx.sin, out=dqkv[:, :, : ctx.num_heads], sign=-1.0)
        _turn(dk, ctx.cos, ctx.sin, out=dqkv[:, :, ctx.num_heads : ctx.num_turned], sign=-1.0)
        dqkv[:, :, ctx.num_turned :] = dv
        return dqkv, None, None, None, None
