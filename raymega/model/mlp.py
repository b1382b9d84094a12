"""The feed-forward part of a block, cut over the team by its inner size F.

    llama   down(silu(gate x) * up x)      gate and up are one column-parallel product
    gpt2    down(gelu(up x + b)) + b       gelu by tanh, as published

Sources: Shazeer 2020 (arXiv 2002.05202); Radford et al. 2019.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from raymega.model.flat_params import FlatParams
from raymega.model.tp_linear import column_linear, row_linear
from raymega.model.tp_team import Team


class SwigluMlp:
    """`name`.gate, `name`.up, `name`.down."""

    def __init__(self, *, flat: FlatParams, name: str, team: Team) -> None:
        self.gate_up = flat.weight(f"{name}.gate", f"{name}.up")  # [2 F/tp, D]
        self.down = flat.weight(f"{name}.down")  # [D, F/tp]
        self.team = team

    def __call__(self, x: Tensor) -> Tensor:
        gate_up = column_linear(x, weight=self.gate_up, bias=None, team=self.team)  # [B, T, 2 F/tp]
        return row_linear(swiglu(gate_up), weight=self.down, bias=None, team=self.team)


class GeluMlp:
    """`name`.up, `name`.up_bias, `name`.down, `name`.down_bias."""

    def __init__(self, *, flat: FlatParams, name: str, team: Team) -> None:
        self.up, self.up_bias = flat.weight(f"{name}.up"), flat.weight(f"{name}.up_bias")
        self.down, self.down_bias = flat.weight(f"{name}.down"), flat.weight(f"{name}.down_bias")
        self.team = team

    def __call__(self, x: Tensor) -> Tensor:
        inner = column_linear(x, weight=self.up, bias=self.up_bias, team=self.team)  # [B, T, F/tp]
        return row_linear(F.gelu(inner, approximate="tanh"), weight=self.down, bias=self.down_bias, team=self.team)


def swiglu(gate_up: Tensor) -> Tensor:
    """[..., 2 F] -> [..., F]: silu of the first half times the second; keeps its input only."""
    return _Swiglu.apply(gate_up)


class _Swiglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        grad = torch.empty_like(gate_up)
        dgate, dup = grad.chunk(2, dim=-1)
        torch.mul(dy, F.silu(gate), out=dup)
        torch.ops.aten.silu_backward.grad_input(dy * up, gate, grad_input=dgate)
        return grad
