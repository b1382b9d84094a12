"""The peer's program: DistributedDataParallel, a checkpoint every so many steps, and on again from the newest.

    python -m torch.distributed.run .. -m workloads.recovery.peer FOLDER
    python -m workloads.recovery.ray_train FOLDER

It loads torch and nothing else that takes time; the toy's sizes come in a file. A line of `commits` is the unix time,
the step, how many workers made it, and the process that says so.
"""

import json
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.bench.plain_model import PlainDecoder, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to train, and how: fused AdamW."""

    sizes: Sizes
    batch_size: int
    micro_batch_size: int
    lr: float
    betas: tuple[float, float]
    weight_decay: float
    clip_grad: float
    save_every: int

    def write(self, folder: Path) -> None:
        (folder / "job.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "Job":
        found = json.loads((folder / "job.json").read_text())
        return cls(**{**found, "sizes": Sizes(**found["sizes"])})


def train(folder: Path) -> None:
    """Train for ever. Rank 0 writes commits and checkpoints, everyone its process number."""
    torch.set_num_threads(1)
    job, rank, size = Job.read(folder), dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = PlainDecoder(job.sizes)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=job.lr, betas=job.betas, weight_decay=job.weight_decay, fused=True
    )
    step, saved = 0, folder / "newest.pt"
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    lines = os.open(folder / "commits", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    while True:
        one_step(parallel, optimizer, job, step=step, rank=rank, size=size)
        step += 1
        if rank == 0:
            os.write(lines, f"{time.time()} {step} {size} {os.getpid()}\n".encode())
            if step % job.save_every == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, saved.with_suffix(".new"))
                saved.with_suffix(".new").replace(saved)


def one_step(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, job: Job, *, step: int, rank: int, size: int
) -> None:
    """Every size-th micro-batch is mine; gradients are summed with the last of them."""
    shape = (job.batch_size, job.sizes.seq_len + 1)
    rows = torch.from_numpy(np.random.default_rng([11, step]).integers(job.sizes.vocab, size=shape))
    tokens = job.batch_size * job.sizes.seq_len
    optimizer.zero_grad(set_to_none=True)
    mine = list(rows.split(job.micro_batch_size))[rank::size]
    for index, ids in enumerate(mine):
        with nullcontext() if index == len(mine) - 1 else model.no_sync():
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
            (loss * size / tokens).backward()
    nn.utils.clip_grad_norm_(model.parameters(), job.clip_grad, foreach=True)
    optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(Path(sys.argv[1]))
