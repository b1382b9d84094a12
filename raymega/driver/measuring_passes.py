"""What the passes of small models take on a core: what the planner's shares are fitted to, alone and beside others.

    one block, forward and backward           of two shapes, whose products and rows weigh differently;
    one block and the head with its loss      wholes, so that nothing is told by a difference

The same is done by one worker that has the machine for itself, and by as many at once as it has devices: they share
memory, caches and the clock's power, whatever the micro-benchmarks say of each by itself.
Source: Korthikanti et al. 2022 (arXiv 2205.05198), table 4, which the published constants are fitted to.
"""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from statistics import fmean, quantiles

import torch

from raymega.config.load import load
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.driver.measuring import LIMIT_S, MeasuredDevice
from raymega.driver.process.children import running
from raymega.errors import ClusterError
from raymega.model.backward import run_backward
from raymega.model.stage import PassContext, StageModel, build_stage
from raymega.plan.calibration import REACHED, fitted
from raymega.plan.collectives import Ring
from raymega.plan.cost import PassSeconds, TeamSite, head_seconds, layer_seconds
from raymega.plan.fitted import Constants
from raymega.plan.hardware import HERE, Device
from raymega.plan.job import Job, job_of

REPEATS = 12
FITTED = ("matmul_share", "memory_share", "pass_s")
VOCAB_SIZES = {256: 2048, 512: 8192}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A block and a head. `tokens`: of a micro-batch."""

    hidden: int
    seq_len: int
    micro: int

    @property
    def config(self) -> Config:
        """One block of the built-in model."""
        keys = (
            f"model.hidden_size={self.hidden}", f"model.num_attention_heads={self.hidden // 64}", "model.num_layers=1",
            f"data.seq_len={self.seq_len}", f"training.batch_size={self.micro}",
            f"training.micro_batch_size={self.micro}", "run.device=cpu",
        )  # fmt: skip
        loaded = load("", source="calibrate", overrides=keys)
        return resolve(loaded, vocab_size=VOCAB_SIZES[self.hidden], name="calibrate", seed=1)


SHAPES = (Shape(hidden=256, seq_len=128, micro=4), Shape(hidden=512, seq_len=256, micro=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What passes reach of a device's rates, and how much faster they are while its neighbours are idle."""

    constants: Constants = REACHED
    alone: float = 1.0


def measured_pace(found: MeasuredDevice, *, workers: int) -> Pace:
    """Measure passes of a core, of which `found` was measured beside as many workers."""
    beside_s = measured_passes(workers)
    alone_s = measured_passes(1) if workers > 1 else beside_s
    device = Device(
        name=found.name, flops_per_s={"fp32": found.flops_per_s["fp32"]}, memory_bytes=found.memory_bytes,
        memory_bytes_per_s=found.memory_bytes_per_s,
    )  # fmt: skip
    alone = fmean(beside / by_itself for beside, by_itself in zip(beside_s, alone_s, strict=True))
    return Pace(constants=fitted_shares(device, measured_s=beside_s), alone=max(1.0, alone))


def measured_passes(workers: int) -> tuple[float, ...]:
    """Seconds of each pass of `SHAPES`, as `predicted_passes` has them, of so many workers at once.

    They are the processor's, of which other programs take none, and of each worker the lower quartile, since caches
    they do take; of several workers the mean.
    Raises: ClusterError if one of them says nothing.
    """
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(workers)
    ends = [context.Pipe(duplex=False) for _ in range(workers)]
    processes = [context.Process(target=_work, args=(together, writer)) for _, writer in ends]
    with running(processes):
        found = [_told(reader) for reader, _ in ends]
    return tuple(fmean(values) for values in zip(*found, strict=True))


def predicted_passes(device: Device, *, constants: Constants) -> tuple[float, ...]:
    """Seconds of the same passes by `plan.cost`: forward and backward of the block, then with the head."""
    return tuple(
        seconds + constants.pass_s
        for shape in SHAPES
        for part in _parts(_site(shape, device, constants))
        for seconds in (part.forward_s, part.backward_s)
    )


def fitted_shares(device: Device, *, measured_s: Sequence[float]) -> Constants:
    """The shares of `device`'s rates that passes reach, and the host's seconds of one."""

    def predict_s(constants: Constants) -> tuple[float, ...]:
        return predicted_passes(device, constants=constants)

    return fitted(REACHED, names=FITTED, measured_s=measured_s, predict_s=predict_s)


def _parts(site: TeamSite) -> tuple[PassSeconds, PassSeconds]:
    block = layer_seconds(site, recompute="none")
    return block, block + head_seconds(site)


def _site(shape: Shape, device: Device, constants: Constants) -> TeamSite:
    return TeamSite(
        job=_job_of(shape), device=device, links=HERE, ring=Ring(members=1, per_node=1), constants=constants,
        microbatch_size=shape.micro, sequence_parallel=False,
    )  # fmt: skip


@cache
def _job_of(shape: Shape) -> Job:
    return job_of(shape.config)


def _work(together: Barrier, writer: Connection) -> None:
    torch.set_num_threads(1)
    stages = [(shape, _stage(shape, last=last)) for shape in SHAPES for last in (False, True)]
    for shape, stage in stages:
        _pass_s(shape, stage)
    together.wait(LIMIT_S)
    rounds = [[seconds for shape, stage in stages for seconds in _pass_s(shape, stage)] for _ in range(REPEATS)]
    writer.send([quantiles(values, n=4)[0] for values in zip(*rounds, strict=True)])


def _stage(shape: Shape, *, last: bool) -> StageModel:
    return build_stage(shape.config, layers=(0, 1), first=False, last=last, team=None, seed=1)


def _pass_s(shape: Shape, stage: StageModel) -> Iterator[float]:
    """The processor's seconds of a forward, then of its backward; autograd runs in this thread."""
    samples, size = torch.arange(shape.micro), (shape.micro, shape.seq_len)
    x = torch.ones(*size, shape.hidden).requires_grad_()  # [B, T, D]
    targets, began = torch.zeros(size, dtype=torch.long), time.thread_time()
    y = stage.forward(x, PassContext(step=0, samples=samples, training=True))
    if stage.head is not None:
        y = stage.loss_sum(y, targets, None)
    yield time.thread_time() - began
    dy, began = torch.ones_like(y), time.thread_time()
    run_backward(y, grad=dy)
    yield time.thread_time() - began


def _told(reader: Connection) -> list[float]:
    if not reader.poll(LIMIT_S):
        raise ClusterError(f"a worker that is measured said nothing for {LIMIT_S:.0f} s. Is the machine loaded?")
    found: list[float] = reader.recv()
    return found
