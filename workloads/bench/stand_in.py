"""A model whose blocks compute nothing and wait a known time: a stage of it is busy exactly as long as it says.

A backward waits half of its time for the input, half for a weight that nothing reads, so that schedules can run the
second half later.

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
from raymega.model.backward import add_to
from raymega.model.pass_context import PassContext
from raymega.model.protocol import Ground

FORWARD_S, BACKWARD_S = "RAYMEGA_BENCH_FORWARD_S", "RAYMEGA_BENCH_BACKWARD_S"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The `Architecture`; its parameters are the embedding, and a square matrix a block."""

    config: Config

    def param_specs(self) -> tuple[ParamSpec, ...]:
        hidden = self.config.model.hidden_size
        return (
            ParamSpec(
                name="embed.tokens",
                shape=(int(self.config.model.vocab_size or 1), hidden),
                cut="none",
                owner="first",
                init="normal",
            ),
            *(
                ParamSpec(name=f"layers.{layer}.weight", shape=(hidden, hidden), cut="none", owner=layer, init="ones")
                for layer in range(self.config.model.num_layers)
            ),
        )

    def embedding(self, ground: Ground) -> "Lookup":
        return Lookup(weight=ground.flat.weight("embed.tokens"))

    def block(self, ground: Ground, *, layer: int) -> "Wait":
        return Wait(weight=ground.flat.weight(f"layers.{layer}.weight"))

    def head(self, ground: Ground) -> "SumHead":
        return SumHead()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    weight: Tensor

    def __call__(self, ids: Tensor, ctx: PassContext) -> Tensor:
        return self.weight[ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    weight: Tensor

    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        return _Wait.apply(x, self.weight, float(os.environ[FORWARD_S]), float(os.environ[BACKWARD_S]))


class SumHead:
    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        return x

    def loss_sum(self, hidden: Tensor, *, targets: Tensor, mask: Tensor | None) -> Tensor:
        return hidden.sum()

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.weight, ctx.part_s = weight, backward_s / 2
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        part_s = ctx.part_s
        time.sleep(part_s)
        add_to(ctx.weight, lambda: time.sleep(part_s))
        return dy, None, None, None


def build(config: Config) -> StandIn:
    return StandIn(config=config)
