"""The token embedding, cut over the team by rows of the vocabulary.

    shard 0: rows [0, 49)     ids 3 50 12  ->  e3  0   e12
    shard 1: rows [49, 97)                 ->  0   e50 0     --g-->  e3 e50 e12

An id that another shard holds gives zeros forward, and no gradient backward.
Source: Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raymega.layout.shard_box import Box
from raymega.model.backward import add_to
from raymega.model.tp_team import Team


def vocab_embedding(ids: Tensor, *, weight: Tensor, box: Box, team: Team) -> Tensor:
    """ids [B, T] int64, weight [rows, D] of which `box` says which -> [B, T/tp or T, D]."""
    return _VocabEmbedding.apply(ids, weight, box, team)


def local_rows(ids: Tensor, *, box: Box) -> tuple[Tensor, Tensor]:
    """Row of each id in the shard, and whether the shard holds it; 0 where it does not."""
    rows = ids - box.offsets[0]
    held = (rows >= 0) & (rows < box.sizes[0])
    return rows * held, held


class _VocabEmbedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, box: Box, team: Team) -> Tensor:
        rows, held = local_rows(ids, box=box)
        ctx.save_for_backward(rows, held)
        ctx.weight, ctx.team = weight, team
        x = weight.index_select(0, rows.view(-1)).view(*ids.shape, -1)
        if team.size > 1:
            x.mul_(held[..., None])
        return team.collect(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dx: Tensor) -> tuple[None, None, None, None]:
        rows, held = ctx.saved_tensors
        dx = ctx.team.spread(dx)
        if ctx.team.size > 1:
            dx = dx * held[..., None]
        weight, dx = ctx.weight, dx.float()
        add_to(weight, lambda: weight.grad.index_add_(0, rows.view(-1), dx.reshape(-1, dx.shape[-1])))
        return None, None, None, None
