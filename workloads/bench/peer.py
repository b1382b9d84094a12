"""A peer: one process of a plain torch program that does the same steps, a block at a time, when it is told to.

    one        a loop over micro-batches                        python -m workloads.bench.peer JOB
    ddp        DistributedDataParallel, no_sync until the last  torchrun --nproc-per-node 2 ..
    pipeline   torch.distributed.pipelining, Schedule1F1B       torchrun --nproc-per-node 2 ..

Between blocks it waits for a word on a socket and uses no processor.
"""

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Client
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from raymega.config.dims import dims_of
from raymega.config.schema import Config
from workloads.bench.plain_model import PlainDecoder, Sizes, fill
from workloads.bench.same_work import rows_of
from workloads.bench.settings import Contest

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
OneStep = Callable[[Tensor, Tensor], float]
"""(inputs, targets), each [batch, T] int64 -> this rank's part of the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a peer has to do; `values` and `address` are files beside it. `layers`: of each stage."""

    contest: Contest
    config: Config
    layers: tuple[tuple[int, int], ...]
    values: str
    address: str

    @property
    def tokens(self) -> int:
        return self.config.training.batch_size * self.config.data.seq_len


def sizes_of(config: Config, *, layers: tuple[int, int]) -> Sizes:
    """The sizes of the stage that holds `layers`."""
    model, dims = config.model, dims_of(config.model)
    return Sizes(
        hidden=dims.hidden, heads=dims.heads, kv_heads=dims.kv_heads, ffn=dims.ffn, vocab=dims.vocab,
        seq_len=config.data.seq_len, eps=model.norm_eps, theta=model.rope_theta, tied=model.tie_embeddings,
        layers=layers, is_first=layers[0] == 0, is_last=layers[1] == dims.layers,
        bf16=config.training.precision == "bf16",
    )  # fmt: skip


def adamw(model: nn.Module, config: Config) -> torch.optim.AdamW:
    """torch's fused AdamW; matrices decay."""
    training, params = config.training, list(model.parameters())
    groups = [
        {"params": [p for p in params if p.ndim >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=training.lr, betas=training.betas, eps=training.eps, fused=True)


def loss_sum(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")


def loop_step(model: nn.Module, job: Job) -> OneStep:
    """Accumulate over micro-batches (every SIZE-th is mine), clip, update."""
    optimizer, training = adamw(model, job.config), job.config.training
    scale = SIZE / job.tokens  # DDP divides by the number of replicas

    def step(inputs: Tensor, targets: Tensor) -> float:
        optimizer.zero_grad(set_to_none=True)
        mine = list(zip(inputs, targets, strict=True))[RANK::SIZE]
        total = torch.zeros(())
        for index, (x, y) in enumerate(mine):
            last = index == len(mine) - 1
            with nullcontext() if last or not isinstance(model, DistributedDataParallel) else model.no_sync():
                loss = loss_sum(model(x), y)
                (loss * scale).backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_grad, foreach=True)
        optimizer.step()
        return float(total) / job.tokens

    return lambda inputs, targets: step(in_microbatches(inputs, job), in_microbatches(targets, job))


def in_microbatches(x: Tensor, job: Job) -> Tensor:
    """[batch, T] -> [micro-batches, B, T]."""
    return x.view(-1, job.config.training.micro_batch_size, x.shape[1])


def pipeline_step(model: PlainDecoder, job: Job) -> OneStep:
    """One 1F1B step; a tied matrix and the norm for clipping are summed over the stages."""
    optimizer, training = adamw(model, job.config), job.config.training
    stage = PipelineStage(model, RANK, SIZE, torch.device("cpu"))
    schedule = Schedule1F1B(
        stage,
        training.batch_size // training.micro_batch_size,
        loss_fn=lambda logits, targets: loss_sum(logits, targets) / job.tokens,
        scale_grads=False,
    )
    tied = model.tied_weight
    counted = [p for p in model.parameters() if RANK == 0 or p is not tied]

    def step(inputs: Tensor, targets: Tensor) -> float:
        optimizer.zero_grad(set_to_none=True)
        losses: list[Tensor] = []
        if model.sizes.is_first:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=losses)
        if tied is not None:
            dist.all_reduce(tied.grad)
        norm_sq = nn.utils.get_total_norm([p.grad for p in counted if p.grad is not None], foreach=True).square()
        dist.all_reduce(norm_sq)
        nn.utils.clip_grads_with_norm_(model.parameters(), training.clip_grad, norm_sq.sqrt(), foreach=True)
        optimizer.step()
        return float(sum(losses)) if losses else 0.0

    return step


def make_step(job: Job) -> OneStep:
    """The program of this rank."""
    model = PlainDecoder(sizes_of(job.config, layers=job.layers[RANK if job.contest == "pipeline" else 0]))
    fill(model, torch.load(job.values))
    if job.contest == "pipeline":
        return pipeline_step(model, job)
    return loop_step(DistributedDataParallel(model, gradient_as_bucket_view=True) if SIZE > 1 else model, job)


def tensors_of(config: Config, step: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a step, each [batch, T] int64."""
    rows = torch.from_numpy(rows_of(config, step)).long()
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def main() -> None:
    torch.set_num_threads(1)
    job: Job = torch.load(Path(sys.argv[1]), weights_only=False)
    if SIZE > 1:
        dist.init_process_group("gloo")
    step = make_step(job)
    with Client(job.address, family="AF_UNIX") as bench:
        bench.send(os.getpid())
        while (steps := bench.recv()) is not None:
            batches = [tensors_of(job.config, index) for index in range(*steps)]
            bench.send("prepared")
            bench.recv()
            bench.send([step(inputs, targets) for inputs, targets in batches])
    if SIZE > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
