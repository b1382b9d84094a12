"""What hides behind a backward: seconds of a step over a link on which a sum takes a known time.

    at its end    | forward | backward, block by block |  sums  |      one bucket
    meanwhile     | forward | backward, block by block | |             a bucket for each block
                                  |  sums ...............|

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
from raymega.worker.interface import Assignment, Ready, StepReport, WorkerSettings
from raymega.worker.worker import Worker
from workloads.bench.raymega_side import batch_of
from workloads.bench.settings import plan_of
from workloads.bench.stand_in import BACKWARD_S, FORWARD_S

BLOCKS, HIDDEN, STEPS = 8, 64, 4
BLOCK_S = 0.03
BLOCK_BYTES = 4 * HIDDEN * HIDDEN
LIMIT_S = 60.0


def overlap_lines() -> Iterator[str]:
    """Steps with sums at the end of the backward, and in it."""
    yield f"\noverlap: {BLOCKS} blocks, {BLOCK_S:g} s each backward, and as long on the link; seconds of a step"
    for name, bucket_bytes in (("sums at its end", 1 << 30), ("meanwhile", BLOCK_BYTES)):
        with patch.object(step, "BUCKET_BYTES", bucket_bytes):
            last = _steps()
        exposed_s, hidden_s = last.seconds["reduce"], last.seconds["hidden_reduce"]
        share, told = exposed_s / (exposed_s + hidden_s), f"exposed {exposed_s:.3f}, hidden {hidden_s:.3f}"
        yield f"  {name:<16} step {last.step_s:.3f}  sums {told}: {share:.0%} exposed"


class Link:
    """`LocalFabric` whose ring is busy for a time that goes by the bytes of a sum."""

    def __init__(self, fabric: LocalFabric) -> None:
        self._fabric, self._free_at = fabric, 0.0

    def __getattr__(self, name: str) -> Any:  # Any: all else is the fabric's
        return getattr(self._fabric, name)

    def group(self, spec: GroupSpec) -> Group:
        group: Any = self._fabric.group(spec)
        if "/dp/" in spec.key:
            begin = group.start_all_reduce
            group.start_all_reduce = lambda x, op="sum", *, out=None: self._busy(begin(x, op, out=out), x.nbytes)
        return group

    def _busy(self, work: Work, num_bytes: int) -> "Arriving":
        self._free_at = max(self._free_at, time.perf_counter()) + BLOCK_S * num_bytes / BLOCK_BYTES
        return Arriving(work, at=self._free_at)


class Arriving:
    """A sum that is there at a time."""

    def __init__(self, work: Work, *, at: float) -> None:
        self._work, self._at = work, at

    def wait(self) -> None:
        self._work.wait()
        time.sleep(max(0.0, self._at - time.perf_counter()))


def _config() -> Config:
    changes = {
        "model.custom": "workloads.bench.stand_in:build", "model.hidden_size": HIDDEN, "model.num_layers": BLOCKS,
        "data.seq_len": 16, "parallelism.data_parallel_size": 2, "training.batch_size": 2,
        "training.micro_batch_size": 1,
    }  # fmt: skip
    loaded = load("", source="bench", overrides=tuple(f"{key}={value}" for key, value in changes.items()))
    return resolve(loaded, vocab_size=64, name="bench-overlap", seed=1)


def _steps() -> StepReport:
    """The last of some steps of two workers."""
    os.environ[FORWARD_S], os.environ[BACKWARD_S] = "0", str(BLOCK_S)
    config, hub = _config(), LocalHub()
    plan = plan_of(config)

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
