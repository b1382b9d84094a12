"""raymega as a contender: its own worker actors on Ray, fed and granted leave as its controller does it.

bench                      worker actors (one thread of arithmetic each)
  build, start  ------->     groups over gloo, state; Ready
  feed          ------->     batches of the next block wait in the worker            not timed
  grant(until)  ------->     steps as far as granted                                 timed from here
  pulse         <-------     StepReport of the last step                             to here
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray

from raymega.comm.store import RendezvousStore
from raymega.config.schema import Config
from raymega.plan.plan import Plan, WorkerId
from raymega.worker.interface import Assignment, MicrobatchRows, Pulse, Ready, StepBatch, StepReport, WorkerSettings
from raymega.worker.ray_actor import RemoteWorker
from workloads.bench.contender import LIMIT_S, Block, Processors
from workloads.bench.same_work import rows_of

EPOCH, GENERATION = 1, 1
FACTORY = "raymega.worker.worker:Worker"


class RaymegaWorkers:
    """The workers of one plan. `actors`: by worker; the root's is the plan's first."""

    def __init__(self, *, config: Config, plan: Plan, actors: dict[WorkerId, Any]) -> None:  # Any: Ray's handles
        self._config, self._plan, self._actors = config, plan, actors
        self._seen = dict.fromkeys(actors, 0)
        self._until = 0
        self._processors = Processors(())
        self.phases: list[dict[str, float]] = []

    def start(self, store: tuple[str, int]) -> None:
        """Load the libraries, build groups and first values on all workers."""
        births = ray.get([actor.build.remote(EPOCH) for actor in self._actors.values()])
        self._processors = Processors(birth.pid for birth in births)
        assignment = Assignment(generation=GENERATION, plan=self._plan, step=0, store=store)
        ray.get([actor.start.remote(EPOCH, assignment) for actor in self._actors.values()])
        for worker in self._actors:
            self._reports(worker, Ready, number=1)

    def prepare(self, steps: tuple[int, int]) -> None:
        batches = [batch_of(self._config, step) for step in range(*steps)]
        for worker, actor in self._actors.items():
            ray.get(actor.feed.remote(EPOCH, GENERATION, tuple(self._part(batch, worker) for batch in batches)))
        self._until = steps[1]

    def run(self) -> Block:
        used_s, began = self._processors.seconds, time.perf_counter()
        for actor in self._actors.values():
            actor.grant.remote(EPOCH, GENERATION, self._until, (), ())
        done = self._reports(self._plan.workers[0], StepReport, until_step=self._until)
        seconds = time.perf_counter() - began
        self.phases += [report.seconds for report in done]
        return Block(
            seconds=seconds,
            processor_s=self._processors.seconds - used_s,
            losses=tuple(report.loss for report in done),
        )

    @property
    def log_bytes(self) -> int:
        """The most that any worker has held of messages of a step."""
        pulses: list[Pulse] = ray.get([actor.pulse.remote(EPOCH, 0, 0.0) for actor in self._actors.values()])
        return max(pulse.log_bytes for pulse in pulses)

    def _part(self, batch: StepBatch, worker: WorkerId) -> StepBatch:
        coord = self._plan.coord_of(worker)
        mine = self._plan.microbatches_of(replica=coord.replica, stage=coord.stage)
        rows = {m: batch.microbatches[m] for m in mine}
        return StepBatch(
            split="train",
            step=batch.step,
            after_step=batch.step,
            trained_tokens=batch.trained_tokens,
            microbatches=rows,
        )

    def _reports(self, worker: WorkerId, kind: type, *, number: int = 0, until_step: int = 0) -> list[Any]:
        """Reports of `kind`, until there are `number` of them or the last is of `until_step`."""
        found: list[Any] = []
        while not found or (found[-1].step < until_step if until_step else len(found) < number):
            pulse = ray.get(self._actors[worker].pulse.remote(EPOCH, self._seen[worker], LIMIT_S))
            assert pulse.reports, f"{worker} said nothing for {LIMIT_S} s in phase {pulse.phase}"
            for sequence, report in pulse.reports:
                self._seen[worker] = sequence
                assert isinstance(report, kind), f"{worker}: {report}"
                found.append(report)
        return found


def batch_of(config: Config, step: int) -> StepBatch:
    """The rows of a step as raymega's feeder sends them."""
    training = config.training
    ids, size = rows_of(config, step), training.micro_batch_size
    samples = np.arange(step * training.batch_size, (step + 1) * training.batch_size)
    rows = {
        m: MicrobatchRows(samples=samples[m * size : (m + 1) * size], ids=ids[m * size : (m + 1) * size])
        for m in range(training.batch_size // size)
    }
    return StepBatch(
        split="train", step=step, after_step=step, trained_tokens=ids[:, 1:].size, microbatches=rows
    )  # fmt: skip


@contextmanager
def raymega_workers(config: Config, plan: Plan, *, folder: str) -> Iterator[RaymegaWorkers]:
    """Start a worker actor for each rank of `plan`; Ray is connected. They end with the block."""
    actors = {
        worker: RemoteWorker.options(num_cpus=1).remote(
            WorkerSettings(
                worker=worker, config=config, run_dir=folder, checkpoint_dir=folder, device="cpu",
                log_file=f"{folder}/{worker}.log",
            ),
            factory=FACTORY, threads=1, orphan_lease_s=24 * 3600.0,
        )
        for worker in plan.workers
    }  # fmt: skip
    store = RendezvousStore.open()
    try:
        side = RaymegaWorkers(config=config, plan=plan, actors=actors)
        side.start(store.address)
        yield side
    finally:
        ray.wait([actor.stop.remote(EPOCH) for actor in actors.values()], num_returns=len(actors), timeout=LIMIT_S)
        for actor in actors.values():
            ray.kill(actor, no_restart=True)
        store.close()
