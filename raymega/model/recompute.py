"""Computes a part of the forward again in the backward, instead of keeping what it made.

    none         x -> part -> y      keeps all that the part's backward needs
    recomputed   x -> part -> y      keeps x; its backward runs the part again: x -> y', then dy -> dx

The second forward has the bits of the first: the same kernels on the same input, dropout drawn by (seed, step, sample,
layer), and the team's collectives once more, in the same order on all shards. Source: Chen et al. 2016
(arXiv 1604.06174); which part pays: Korthikanti et al. 2022 (arXiv 2205.05198), section 5.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raymega.model.backward import WeightGrads


def recomputed(x: Tensor, part: Callable[[Tensor], Tensor], *, grads: WeightGrads) -> Tensor:
    """part(x), of which only `x` is kept. `grads`: of the weights that the part reads."""
    return _Recomputed.apply(x, part, grads)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Callable[[Tensor], Tensor], grads: WeightGrads) -> Tensor:
        ctx.save_for_backward(x)
        ctx.part, ctx.grads = part, grads
        return part(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None]:
        (kept,) = ctx.saved_tensors
        x = kept.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.part(x)
            return ctx.grads.run_within(y, x=x, grad=dy), None, None
