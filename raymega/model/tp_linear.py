"""How a linear layer is cut over a team: Y = X A, by columns of A, then by rows.

    column:  A = [A1 | A2]      Yi = X Ai            f before: dX = sum of the shards' dYi Ai'
    row:     A = [A1 ; A2]      Y  = X1 A1 + X2 A2   g after: the sum; the bias is added once, after it

        X --f-->  X A1  --act-->  H1 B1  --g-->  Y        one collective in each direction for the pair
          `--f->  X A2  --act-->  H2 B2  -'

Weights are stored [out, in], so a column cut of A is a cut of rows of the stored weight. A weight's gradient is
added straight to its accumulator by the product itself (beta = 1), which costs no further pass. Backward is in two
parts, `input_grad` and what is handed to `add_to`, so that a schedule may run the second later.
Source: Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raymega.model.backward import add_to
from raymega.model.products import add_product, backward_product, linear
from raymega.model.tp_team import Team

NOTHING = slice(0, 0)


def column_linear(x: Tensor, *, weight: Tensor, bias: Tensor | None, team: Team, still: slice = NOTHING) -> Tensor:
    """x [B, T/tp or T, D], weight [F/tp, D] -> [B, T, F/tp].

    Args:
        still: elements of the bias whose gradient is exactly zero by the mathematics of what follows.
    """
    return _ColumnLinear.apply(x, weight, bias, team, still)


def row_linear(x: Tensor, *, weight: Tensor, bias: Tensor | None, team: Team) -> Tensor:
    """x [B, T, F/tp], weight [D, F/tp] -> [B, T/tp or T, D]; `bias` [D] is whole on every shard."""
    return _RowLinear.apply(x, weight, bias, team)


def input_grad(dy: Tensor, *, weight: Tensor) -> Tensor:
    """dX = dY W, this shard's part of it."""
    return backward_product(dy, weight)


def add_weight_grad(weight: Tensor, *, dy: Tensor, x: Tensor) -> None:
    """dW += dY' X, in the accumulator."""
    assert weight.grad is not None
    add_product(weight.grad, dy=_rows(dy), x=_rows(x))


def add_bias_grad(bias: Tensor | None, *, dy: Tensor, still: slice = NOTHING) -> None:
    """db += the sum of dY over all rows, in the accumulator; nothing to the elements `still`."""
    if bias is not None:
        assert bias.grad is not None
        db = _rows(dy).sum(0, dtype=torch.float32)
        db[still] = 0.0
        bias.grad.add_(db)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


class _ColumnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, team: Team, still: slice) -> Tensor:
        ctx.save_for_backward(x)  # under sequence parallelism the shard's part only: it is gathered again
        ctx.weight, ctx.bias, ctx.team, ctx.still = weight, bias, team, still
        return linear(team.spread(x), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None, None]:
        (x,) = ctx.saved_tensors
        weight, bias, team, still = ctx.weight, ctx.bias, ctx.team, ctx.still

        def add() -> None:
            add_weight_grad(weight, dy=dy, x=team.spread(x))
            add_bias_grad(bias, dy=dy, still=still)

        dx = team.start_collect(input_grad(dy, weight=weight))
        add_to(weight, add)  # while dx travels, if it is now
        return dx.wait(), None, None, None, None


class _RowLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, team: Team) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.bias, ctx.team = weight, bias, team
        y = team.collect(linear(x, weight))
        return y if bias is None else y.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        weight, bias, own, dy = ctx.weight, ctx.bias, dy, ctx.team.spread(dy)

        def add() -> None:
            add_bias_grad(bias, dy=own)  # under sequence parallelism a part, as of every uncut parameter
            add_weight_grad(weight, dy=dy, x=x)

        dx = input_grad(dy, weight=weight)
        add_to(weight, add)
        return dx, None, None, None
