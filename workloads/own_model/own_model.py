"""A model of one's own: tokens look at the running mean of what came before, instead of attending to it.

    x = x + out(mean over positions <= t of relu(value x)) * scale          `value`, `out` are cut over the team
    loss = cross entropy + 1e-3 x mean square of the hidden states

Names, shapes and cuts stand in `param_specs`; everything else (stages, teams, first values, gradients, checkpoints,
resizes) follows from them. `scale` is used with plain torch: autograd adds to its gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from raymega.config.schema import Config
from raymega.errors import ConfigError
from raymega.layout.param_spec import ParamSpec
from raymega.model.norms import rms_norm
from raymega.model.pass_context import PassContext
from raymega.model.protocol import Ground
from raymega.model.tp_embedding import vocab_embedding
from raymega.model.tp_linear import column_linear, row_linear
from raymega.model.tp_loss import gathered_logits, vocab_loss_sum

HIDDEN_PENALTY = 1e-3


def build(config: Config) -> "MeanMixer":
    """What `model.custom: own_model:build` calls."""
    if config.parallelism.sequence_parallel:
        raise ConfigError("own_model sees whole sequences: set parallelism.sequence_parallel to false.")
    return MeanMixer(config=config)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanMixer:
    config: Config

    @property
    def vocab(self) -> int:
        assert self.config.model.vocab_size is not None
        return self.config.model.vocab_size

    def param_specs(self) -> tuple[ParamSpec, ...]:
        d, inner = self.config.model.hidden_size, 2 * self.config.model.hidden_size
        specs = [ParamSpec(name="embed.tokens", shape=(self.vocab, d), cut="vocab", owner="first", init="normal")]
        for i in range(self.config.model.num_layers):
            specs += [
                ParamSpec(name=f"layers.{i}.norm", shape=(d,), cut="none", owner=i, init="ones"),
                ParamSpec(name=f"layers.{i}.value", shape=(inner, d), cut="rows", owner=i, init="normal", fan_in=d),
                ParamSpec(
                    name=f"layers.{i}.out", shape=(d, inner), cut="columns", owner=i, init="residual", fan_in=inner
                ),
                ParamSpec(name=f"layers.{i}.scale", shape=(d,), cut="none", owner=i, init="ones"),
            ]
        specs.append(
            ParamSpec(name="head.out", shape=(self.vocab, d), cut="vocab", owner="last", init="normal", fan_in=d)
        )
        return tuple(specs)

    def embedding(self, ground: Ground) -> "Embedding":
        return Embedding(ground)

    def block(self, ground: Ground, *, layer: int) -> "Block":
        return Block(ground, name=f"layers.{layer}")

    def head(self, ground: Ground) -> "PenalisedHead":
        return PenalisedHead(ground, vocab=self.vocab)


class Embedding:
    def __init__(self, ground: Ground) -> None:
        self.tokens, self.box = ground.flat.weight("embed.tokens"), ground.flat.param("embed.tokens").box
        self.team = ground.team

    def __call__(self, ids: Tensor, ctx: PassContext) -> Tensor:
        return vocab_embedding(ids, weight=self.tokens, box=self.box, team=self.team)


class Block:
    def __init__(self, ground: Ground, *, name: str) -> None:
        self.norm, self.value, self.out, self.scale = (
            ground.flat.weight(f"{name}.{part}") for part in ("norm", "value", "out", "scale")
        )
        self.team = ground.team

    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        values = torch.relu(
            column_linear(rms_norm(x, weight=self.norm, eps=1e-5), weight=self.value, bias=None, team=self.team)
        )  # [B, T, 2 D/tp]
        counts = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        mixed = values.cumsum(1) / counts
        return x + row_linear(mixed, weight=self.out, bias=None, team=self.team) * self.scale


class PenalisedHead:
    def __init__(self, ground: Ground, *, vocab: int) -> None:
        self.out, self.box = ground.flat.weight("head.out"), ground.flat.param("head.out").box
        self.vocab, self.team = vocab, ground.team

    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        return x

    def loss_sum(self, hidden: Tensor, *, targets: Tensor, mask: Tensor | None) -> Tensor:
        loss = vocab_loss_sum(hidden, weight=self.out, targets=targets, mask=mask, box=self.box, team=self.team)
        square = hidden.square().mean(-1)  # [B, T]
        return loss + HIDDEN_PENALTY * (square if mask is None else square * mask).sum()

    def logits(self, hidden: Tensor) -> Tensor:
        return gathered_logits(hidden, weight=self.out, box=self.box, vocab_size=self.vocab, team=self.team)
