"""Optimizers over flat buffers: AdamW and SGD, one kernel call for all that decays and one for the rest.

    data, exp_avg, exp_avg_sq   [ decays: matrices          | no decay: biases, norms ]      the same layout
                                0                           num_decayed               n

The reduced gradient is read and never written, so it can be applied again after a broken step; clipping is folded into
the read. Nothing is touched before `apply`: a skipped step leaves weights, moments and the counter as they are.
Sources: Loshchilov and Hutter 2019 (arXiv 1711.05101), decoupled decay.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from raymega.config.schema import TrainingConfig

CHUNK_ELEMENTS = 1 << 16  # of a clipped gradient at a time: 256 KiB, which a core's cache holds


class Optimizer(Protocol):
    """What updates a flat buffer of parameters."""

    @property
    def updates(self) -> Tensor:
        """Number of updates so far, an fp32 scalar (exact to 2^24); part of the state."""

    @property
    def moments(self) -> dict[str, Tensor]:
        """Flat state by kind, in the layout of the parameters."""

    def apply(self, reduced_grad: Tensor, *, lr: float, clip: float) -> None:
        """Update with the gradient `reduced_grad * clip`, which stays unwritten."""


def build_optimizer(training: TrainingConfig, *, data: Tensor, num_decayed: int) -> Optimizer:
    """The optimizer that the config names, over the flat parameters `data`, of which the first `num_decayed` decay."""
    if training.optimizer == "sgd":
        return Sgd(data=data, num_decayed=num_decayed, weight_decay=training.weight_decay, updates=_counter(data))
    return AdamW(
        data=data, num_decayed=num_decayed, weight_decay=training.weight_decay, betas=training.betas, eps=training.eps,
        exp_avg=torch.zeros_like(data), exp_avg_sq=torch.zeros_like(data), updates=_counter(data),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """w -= lr (g + decay w), without momentum."""

    data: Tensor
    num_decayed: int
    weight_decay: float
    updates: Tensor

    @property
    def moments(self) -> dict[str, Tensor]:
        return {}

    @torch.no_grad()
    def apply(self, reduced_grad: Tensor, *, lr: float, clip: float) -> None:
        self.updates.add_(1)
        self.data[: self.num_decayed].mul_(1.0 - lr * self.weight_decay)
        self.data.add_(reduced_grad, alpha=-lr * clip)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Adam with decoupled decay, by torch's fused kernel."""

    data: Tensor
    num_decayed: int
    weight_decay: float
    betas: tuple[float, float]
    eps: float
    exp_avg: Tensor
    exp_avg_sq: Tensor
    updates: Tensor

    @property
    def moments(self) -> dict[str, Tensor]:
        return {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}

    @torch.no_grad()
    def apply(self, reduced_grad: Tensor, *, lr: float, clip: float) -> None:
        self.updates.add_(1)
        end = self.data.numel()
        for start, stop, decay in ((0, self.num_decayed, self.weight_decay), (self.num_decayed, end, 0.0)):
            step = CHUNK_ELEMENTS if clip != 1.0 else max(1, stop - start)  # unclipped: no copy, so all at once
            for first in range(start, stop, step):
                part = slice(first, min(first + step, stop))
                grad = reduced_grad[part] * clip if clip != 1.0 else reduced_grad[part]
                self._update(part, grad=grad, lr=lr, decay=decay)

    def _update(self, part: slice, *, grad: Tensor, lr: float, decay: float) -> None:
        torch._fused_adamw_(
            [self.data[part]], [grad], [self.exp_avg[part]], [self.exp_avg_sq[part]], [], [self.updates],
            lr=lr, beta1=self.betas[0], beta2=self.betas[1], weight_decay=decay, eps=self.eps,
            amsgrad=False, maximize=False,
        )  # fmt: skip


def _counter(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.float32, device=like.device)
