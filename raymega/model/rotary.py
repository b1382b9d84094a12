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
    """x [B, T, heads, K], possibly strided -> the same, contiguous."""
    return _Rotate.apply(x, cos, sin)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    (x1, x2), (out1, out2) = x.chunk(2, dim=-1), out.chunk(2, dim=-1)
    torch.mul(x1, cos, out=out1).addcmul_(x2, sin, value=-1.0)
    torch.mul(x2, cos, out=out2).addcmul_(x1, sin)
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.cos, ctx.sin = cos, sin
        return _turn(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return _turn(dy, ctx.cos, -ctx.sin), None, None
