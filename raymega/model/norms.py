"""RMSNorm, LayerNorm: statistics and weights in fp32 whatever the format of x, few passes over memory.

    RMSNorm   y = x r w,  r = 1 / sqrt(mean(x^2) + eps)
    backward  with t = dy x:  dw = sum over rows of t r;   dx = r (dy w) - x r^3 (t . w) / D

Only x and one number a row are kept. Source: Zhang and Sennrich 2019 (arXiv 1910.07467).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raymega.model.backward import add_to

Norm = Callable[[Tensor], Tensor]


def rms_norm(x: Tensor, *, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dim of `x`; `weight.grad` accumulates in place."""
    return _RmsNorm.apply(x, weight, eps)


def layer_norm(x: Tensor, *, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalise the last dim of `x`; the parameters' `.grad` accumulate in place."""
    return _LayerNorm.apply(x, weight, bias, eps)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32).square_()
        rstd = square.div_(x.shape[-1]).add_(eps).rsqrt_()  # [..., 1]
        ctx.save_for_backward(x, rstd)
        ctx.weight = weight
        return (x.float() * rstd).mul_(weight).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        kept, rstd = ctx.saved_tensors
        x, dy, width = kept.float(), dy.float(), kept.shape[-1]
        t = (dy * x).view(-1, width)  # [rows, D]
        weight, dw = ctx.weight, torch.mv(t.t(), rstd.view(-1))
        add_to(weight, lambda: weight.grad.add_(dw))
        pull = torch.mv(t, ctx.weight.detach()).view(rstd.shape) * rstd.pow(3).div_(width)  # [..., 1]
        dx = torch.mul(dy, ctx.weight, out=t.view(dy.shape)).mul_(rstd)
        return dx.addcmul_(x, pull, value=-1.0).to(kept.dtype), None, None


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, mean, rstd = torch.native_layer_norm(x.float(), weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, mean, rstd)
        ctx.weight, ctx.bias = weight, bias
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        x, mean, rstd = ctx.saved_tensors
        weight, bias = ctx.weight, ctx.bias
        dx, dw, db = torch.ops.aten.native_layer_norm_backward(
            dy.float(), x.float(), weight.shape, mean, rstd, weight, bias, [True, True, True]
        )
        add_to(weight, lambda: weight.grad.add_(dw))
        add_to(bias, lambda: bias.grad.add_(db))
        return dx.to(x.dtype), None, None, None
