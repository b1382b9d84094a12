"""What hides behind a backward: seconds of a step over a link on which a sum takes a known time.

    at its end    | forward | backward, block by block |  sums  |      one bucket
    meanwhile     | forward | backward, block by block | |             a bucket for each block
                                  |  sums ...............|

    optimizer cut | forward | backward, block by block | |    half of the bytes as sums, to those who hold pieces,
       | weights ......|          |  sums ...............|    the other half as weights, under the next forward

Two replicas, threads of one process, of the stand-in whose blocks wait; a link that is busy for a time that goes by
bytes, as long in all for the sums of a step as its last backward takes.
"""

import os
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from raymega.comm.group import Group, GroupSpec, Work
from raymega.comm.local import LocalFabric, LocalHub
from raymega.config.load import load
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.worker import step
from raymega.worker.gather import Weights
from raymega.worker.interface import Assignment, Ready, StepReport, WorkerSettings
from raymega.worker.worker import Worker
from workloads.bench.raymega_side import batch_of
from workloads.bench.settings import plan_of
from workloads.bench.stand_in import BACKWARD_S, FORWARD_S

BLOCKS, HIDDEN, STEPS = 8, 64, 4
BLOCK_S = 0.03
CUT_FORWARD_S = 0.015  # of a block; half of the link's time is for weights, which have a forward to travel under
BLOCK_BYTES = 4 * HIDDEN * HIDDEN
LIMIT_S = 60.0


def overlap_lines() -> Iterator[str]:
    """Steps with sums at the end of the backward, and in it; with weights before the next forward, and under it."""
    yield f"\noverlap: {BLOCKS} blocks, {BLOCK_S:g} s each backward, and as long on the link; seconds of a step"
    for name, bucket_bytes in (("sums at its end", 1 << 30), ("meanwhile", BLOCK_BYTES)):
        with patch.object(step, "BUCKET_BYTES", bucket_bytes):
            last = _steps(_config(), forward_s=0.0)
        exposed_s, hidden_s = last.seconds["reduce"], last.seconds["hidden_reduce"]
        share, told = exposed_s / (exposed_s + hidden_s), f"exposed {exposed_s:.3f}, hidden {hidden_s:.3f}"
        yield f"  {name:<16} step {last.step_s:.3f}  sums {told}: {share:.0%} exposed"
    yield f"  the optimizer cut (zero1), {CUT_FORWARD_S:g} s each forward:"
    for name, bucket_bytes, begin in (
        ("both at the end", 1 << 30, _at_once), ("sums meanwhile", BLOCK_BYTES, _at_once),
        ("weights too", BLOCK_BYTES, Weights.begin),
    ):  # fmt: skip
        with patch.object(step, "BUCKET_BYTES", bucket_bytes), patch.object(Weights, "begin", begin):
            last = _steps(_config("zero1"), forward_s=CUT_FORWARD_S)
        sums_s, weights_s = last.seconds["reduce"], last.seconds["gather"]
        told = f"exposed: sums {sums_s:.3f}, weights {weights_s:.3f}"
        yield f"  {name:<16} step {last.step_s:.3f}  {told}: {(sums_s + weights_s) / last.step_s:.0%} of the step"


_begin = Weights.begin


def _at_once(weights: Weights) -> None:
    """Begin, and wait for all."""
    _begin(weights)
    weights.finish()


class Link:
    """`LocalFabric` whose ring is busy for a time that goes by what a sum sends twice, and a half of one once."""

    def __init__(self, fabric: LocalFabric) -> None:
        self._fabric, self._free_at = fabric, 0.0

    def __getattr__(self, name: str) -> Any:  # Any: all else is the fabric's
        return getattr(self._fabric, name)

    def group(self, spec: GroupSpec) -> Group:
        group: Any = self._fabric.group(spec)
        if "/dp/" in spec.key:
            whole, scatter, gather = group.start_all_reduce, group.start_all_to_all, group.start_all_gather
            group.start_all_reduce = lambda x, op="sum", *, out=None: self._busy(whole(x, op, out=out), x.nbytes)
            group.start_all_to_all = lambda out, x, **sizes: self._busy(scatter(out, x, **sizes), x.nbytes / 2)
            group.start_all_gather = lambda out, x: self._busy(gather(out, x), x.nbytes)
        return group

    def _busy(self, work: Work, num_bytes: float) -> "Arriving":
        self._free_at = max(self._free_at, time.perf_counter()) + BLOCK_S * num_bytes / BLOCK_BYTES
        return Arriving(work, at=self._free_at)


class Arriving:
    """A sum that is there at a time."""

    def __init__(self, work: Work, *, at: float) -> None:
        self._work, self._at = work, at

    def wait(self) -> None:
        self._work.wait()
        time.sleep(max(0.0, self._at - time.perf_counter()))


def _config(shard_optimizer: str = "none") -> Config:
    changes = {
        "model.custom": "workloads.bench.stand_in:build", "model.hidden_size": HIDDEN, "model.num_layers": BLOCKS,
        "data.seq_len": 16, "parallelism.data_parallel_size": 2, "training.batch_size": 2,
        "training.micro_batch_size": 1, "parallelism.shard_optimizer": shard_optimizer,
    }  # fmt: skip
    loaded = load("", source="bench", overrides=tuple(f"{key}={value}" for key, value in changes.items()))
    return resolve(loaded, vocab_size=64, name="bench-overlap", seed=1)


def _steps(config: Config, *, forward_s: float) -> StepReport:
    """The last of some steps of two workers."""
    os.environ[FORWARD_S], os.environ[BACKWARD_S] = str(forward_s), str(BLOCK_S)
    plan, hub = plan_of(config), LocalHub()

    def fabric(*, assignment: Assignment, settings: WorkerSettings) -> Any:
        return Link(LocalFabric(hub, me=settings.worker, generation=assignment.generation, timeout_s=LIMIT_S))

    workers = [
        Worker(WorkerSettings(worker=name, config=config, run_dir="", checkpoint_dir="", device="cpu"), fabric=fabric)
        for name in plan.workers
    ]
    try:
        for worker in workers:
            worker.start(Assignment(generation=1, plan=plan, step=0, store=("127.0.0.1", 0)))
            worker.feed(1, tuple(batch_of(config, number) for number in range(STEPS)))
            worker.grant(1, STEPS)
        return _last_report(workers[0])
    finally:
        for worker in workers:
            worker.orders.stop()
        for worker in workers:
            worker.stop()


def _last_report(worker: Worker) -> StepReport:
    seen = 0
    while True:
        reports = worker.pulse(seen, LIMIT_S).reports
        assert reports, f"nothing was heard for {LIMIT_S} s"
        seen, report = reports[0]
        assert isinstance(report, Ready | StepReport), f"{report}"
        if isinstance(report, StepReport) and report.step == STEPS:
            return report
