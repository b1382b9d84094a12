"""A small world for models: shards are threads, each plays its shard of every stage and passes activations by hand."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from raymega.comm.group import Group
from raymega.comm.solo import SoloGroup
from raymega.config.schema import Config
from raymega.layout.shard_box import Box
from raymega.model.backward import run_backward
from raymega.model.stage import PassContext, StageModel, build_stage
from tests.comm.worlds import LocalWorld, on_group

SEED = 1234
TINY = {
    "hidden_size": 96, "num_layers": 10, "num_attention_heads": 12, "num_key_value_heads": 4, "ffn_size": 160,
    "vocab_size": 97,
}  # fmt: skip


def tiny(*, sequence_parallel: bool = False, seq_len: int = 24, **model: object) -> Config:
    return Config.model_validate(
        {
            "model": {**TINY, **model},
            "data": {"seq_len": seq_len},
            "parallelism": {"sequence_parallel": sequence_parallel},
        }
    )


def rows(num: int, *, seq_len: int = 24, vocab: int = 97, seed: int = 0) -> Tensor:
    """[num, seq_len + 1] ids."""
    return torch.randint(0, vocab, (num, seq_len + 1), generator=torch.Generator().manual_seed(seed))


@dataclass
class Shard:
    """One shard of every stage of a replica."""

    stages: list[StageModel]
    rank: int
    loss: float = 0.0

    def step(self, ids: Tensor, *, mask: Tensor | None = None, step: int = 0, scale: float | None = None) -> None:
        """Forward and backward of one micro-batch; `scale` seeds the backward (default: one over its tokens)."""
        ctx = PassContext(step=step, samples=torch.arange(len(ids)), training=True)
        x, inputs, outputs = ids[:, :-1], [], []
        for stage in self.stages:
            y = stage.forward(x, ctx)
            inputs.append(x)
            outputs.append(y)
            x = y.detach().requires_grad_()
        loss = self.stages[-1].loss_sum(outputs[-1], ids[:, 1:], mask)
        self.loss += loss.item()
        run_backward(loss, grad=torch.tensor(1.0 / ids[:, 1:].numel() if scale is None else scale))
        for i in range(len(self.stages) - 2, -1, -1):
            run_backward(outputs[i], grad=inputs[i + 1].grad)

    @torch.no_grad()
    def logits(self, ids: Tensor) -> Tensor:
        x, ctx = ids, PassContext(step=0, samples=torch.arange(len(ids)), training=False)
        for stage in self.stages:
            x = stage.forward(x, ctx)
        return self.stages[-1].logits(x)

    def reduced(self) -> list[Tensor]:
        """Flat gradients of each stage with everything summed that lies in parts, beside the accumulators."""
        out = [stage.flat.grad.clone() for stage in self.stages]
        for stage, flat in zip(self.stages, out, strict=True):
            stage.sum_partial_grads(out=flat)
        ends = [(stage.tied, flat) for stage, flat in zip(self.stages, out, strict=True) if stage.tied is not None]
        if ends:
            total = sum(param.view(flat) for param, flat in ends)
            for param, flat in ends:
                param.view(flat).copy_(total)
        return out

    def named(self, flats: list[Tensor]) -> dict[str, tuple[Box, Tensor, tuple[int, ...]]]:
        return {
            param.spec.name: (param.box, param.view(flat).clone(), param.spec.shape)
            for stage, flat in zip(reversed(self.stages), reversed(flats), strict=True)
            for param in stage.params
        }


def build_shard(config: Config, *, group: Group, pp: int, seed: int = SEED) -> Shard:
    layers = config.model.num_layers
    borders = [round(i * layers / pp) for i in range(pp + 1)]
    stages = [
        build_stage(config, layers=(a, b), first=a == 0, last=b == layers, team=group, seed=seed)
        for a, b in pairwise(borders)
    ]
    return Shard(stages=stages, rank=group.rank)


def on_shards(tp: int, body: Callable[[Group], object]) -> list:
    """Run `body` on each shard of a team, a thread each; results by shard."""
    if tp == 1:
        return [body(SoloGroup(spec=None))]
    return on_group(LocalWorld(), tp, body)


def whole(parts: list[dict]) -> dict[str, Tensor]:
    """Put the shards' boxes together, by name; every element must be held."""
    out = {}
    for part in parts:
        for name, (box, tensor, shape) in part.items():
            full = out.setdefault(name, torch.full(shape, torch.nan))
            full[box.within(Box.whole(shape))] = tensor
    assert not any(full.isnan().any() for full in out.values())
    return out


@dataclass
class Outcome:
    loss: float
    grads: dict[str, Tensor]
    shards: list[Shard]


def one_step(config: Config, ids: Tensor, *, tp: int = 1, pp: int = 1, mask: Tensor | None = None) -> Outcome:
    """Loss (summed) and whole gradients of one micro-batch."""

    def body(group: Group):
        shard = build_shard(config, group=group, pp=pp)
        shard.step(ids, mask=mask)
        return shard, shard.named(shard.reduced())

    results = on_shards(tp, body)
    return Outcome(loss=results[0][0].loss, grads=whole([n for _, n in results]), shards=[s for s, _ in results])


def distance(a: Tensor, b: Tensor) -> float:
    """max|a - b| / max|b|: the measure of law 1."""
    return ((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()


def farthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> tuple[float, str]:
    """The greatest distance of two sets of tensors, and its name."""
    assert a.keys() == b.keys()
    return max((distance(a[name], b[name]), name) for name in a)


def on_counted_shards(tp: int, body: Callable[[Group], object]) -> tuple[list, dict[str, int]]:
    """Like `on_shards`, with the collectives that shard 0 entered, by kind."""
    world, ops = LocalWorld(), Counter()

    def count(me: str, key: str, op: str) -> None:
        if me == "w0" and op != "build":
            ops[op] += 1

    world.hub.on_op = count
    return on_group(world, tp, body), dict(ops)
