"""A model whose blocks compute nothing and wait a known time: a stage of it is busy exactly as long as it says.

The times come from the environment, as the model is named in a config: `model.custom: workloads.bench.stand_in:build`.
"""

import os
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from raymega.config.schema import Config
from raymega.layout.param_spec import ParamSpec
from raymega.model.pass_context import PassContext
from raymega.model.protocol import Ground

FORWARD_S, BACKWARD_S = "RAYMEGA_BENCH_FORWARD_S", "RAYMEGA_BENCH_BACKWARD_S"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The `Architecture`; its one parameter is the embedding."""

    config: Config

    def param_specs(self) -> tuple[ParamSpec, ...]:
        shape = (int(self.config.model.vocab_size or 1), self.config.model.hidden_size)
        return (ParamSpec(name="embed.tokens", shape=shape, cut="none", owner="first", init="normal"),)

    def embedding(self, ground: Ground) -> "Lookup":
        return Lookup(weight=ground.flat.weight("embed.tokens"))

    def block(self, ground: Ground, *, layer: int) -> "Wait":
        return Wait()

    def head(self, ground: Ground) -> "SumHead":
        return SumHead()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    weight: Tensor

    def __call__(self, ids: Tensor, ctx: PassContext) -> Tensor:
        return self.weight[ids]


class Wait:
    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        return _Wait.apply(x, float(os.environ[FORWARD_S]), float(os.environ[BACKWARD_S]))


class SumHead:
    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        return x

    def loss_sum(self, hidden: Tensor, *, targets: Tensor, mask: Tensor | None) -> Tensor:
        return hidden.sum()

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(ctx.backward_s)
        return dy, None, None


def build(config: Config) -> StandIn:
    return StandIn(config=config)
