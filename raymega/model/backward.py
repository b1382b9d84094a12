"""Start a backward pass from a gradient that came from elsewhere: the next stage's, or the weight of a loss.

torch's own `backward(gradient)` imports sympy to compare two shapes, the first time it is called: seconds of a worker's
first step, and memory for good. A scalar that hands the gradient on needs none.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def run_backward(y: Tensor, *, grad: Tensor) -> None:
    """Run the backward pass of `y` with `grad`, of the same shape, which stays unwritten."""
    assert y.shape == grad.shape, f"the gradient {tuple(grad.shape)} has the shape of its tensor {tuple(y.shape)}"
    _Seed.apply(y, grad).backward()


class _Seed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, grad: Tensor) -> Tensor:
        ctx.grad = grad
        return y.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.grad, None
