"""Dropout whose mask is a function of (seed, step, sample, layer, site, position, channel), and of nothing else.

So a second forward of the same micro-batch, a recomputation, another replica and any cut of the sequence draw the same
mask: no generator state is kept, saved or restored.
"""

from typing import Literal

import torch
from torch import Tensor

from raymega.model.counter_hash import bits_at, key_of, scalar_key
from raymega.model.pass_context import PassContext
from raymega.model.tp_team import Team

Site = Literal["embedding", "attention", "mlp"]
EMBEDDING_LAYER = -1


class Dropout:
    """Dropout at one place of the residual stream."""

    def __init__(self, *, rate: float, seed: int, layer: int, site: Site, team: Team) -> None:
        self.rate, self.seed, self.layer, self.site, self.team = rate, seed, layer, site, team

    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        """x [B, T/tp or T, D]; survivors are scaled by 1 / (1 - rate)."""
        if self.rate == 0.0 or not ctx.training:
            return x
        return x.masked_fill(~self.keep(x, ctx), 0.0) * (1.0 / (1.0 - self.rate))

    def keep(self, x: Tensor, ctx: PassContext) -> Tensor:
        """Which elements of `x` survive, bool of its shape."""
        batch, length, width = x.shape
        key = scalar_key(key_of(self.seed, ctx.step, self.layer, self.site), device=x.device)
        positions = self.team.positions(length)
        by_sample = bits_at(key, ctx.samples.to(x.device))  # [B]
        by_position = bits_at(by_sample[:, None], _range(positions, x)[None, :])  # [B, T]
        keep = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        channels = _range(range(width), x)
        for row in range(batch):  # one sample's 64-bit words at a time
            bits = bits_at(by_position[row, :, None], channels[None, :])  # [T, D]
            torch.ge(bits >> 32, round(self.rate * 2**32) - 2**31, out=keep[row])
        return keep


def _range(values: range, like: Tensor) -> Tensor:
    return torch.arange(values.start, values.stop, dtype=torch.int64, device=like.device)
