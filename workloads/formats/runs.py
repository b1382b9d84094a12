"""One run of `nano` as two replicas that are threads: real workers, real data, wires that count bytes."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from raymega.comm.local import LocalFabric, LocalHub
from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.data.fetch import batches_of
from raymega.data.open_data import open_data
from raymega.driver.hands.feeder import cut_batch, receivers
from raymega.plan.plan import Plan
from raymega.plan.planner import plan_for
from raymega.worker.interface import Assignment, StepBatch, StepReport, WorkerSettings
from raymega.worker.worker import Worker

VARIANTS = {
    "fp32": (),
    "bf16": ("training.precision=bf16",),
    "fp16": ("training.precision=fp16",),
    "send-bf16": ("parallelism.grad_compression=bf16",),
    "send-fp16": ("parallelism.grad_compression=fp16",),
    "send-int8": ("parallelism.grad_compression=int8",),
}
MESH = ("parallelism.data_parallel_size=2", "parallelism.pipeline_model_parallel_size=1", "training.eval_every=0")
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """`step_s`, `ring_bytes`: of a step; bytes that one replica hands to the sum of gradients."""

    losses: tuple[float, ...]
    step_s: float
    ring_bytes: float


def trained(name: str, *, steps: int) -> Trained:
    """Train with the settings of `name`."""
    changes = (*VARIANTS[name], *MESH, f"training.steps={steps}", "checkpoint.every_steps=0", "run.device=cpu")
    loaded = load(preset_text("nano"), source="nano", overrides=changes)
    data = open_data(loaded.data, seed=1234)
    config = resolve(loaded, name=f"formats-{name}", seed=1234, vocab_size=data.tokenizer.vocab_size)
    plan = plan_for(config, workers={"w0": "here", "w1": "here"}).plan
    fetch = data.train_fetch(batch_size=config.training.batch_size)
    torch.set_num_threads(1)
    with _workers(config, plan) as crew:
        began, losses = time.perf_counter(), list[float]()
        for step in range(steps):
            (batch,) = batches_of(fetch.table(np.array([step])), batch_size=config.training.batch_size)
            parts = {
                worker: cut_batch(
                    batch, microbatches, size=plan.microbatch_size, split="train", after_step=step, last=False
                )
                for worker, microbatches in receivers(plan, rows=len(batch.ids)).items()
            }
            losses.append(crew.step(step, parts).loss)
        seconds = time.perf_counter() - began
        op = "all_gather" if config.parallelism.grad_compression != "none" else "all_reduce"
        sent = crew.fabrics["w0"].traffic.num_bytes(op, group="/dp/")
    return Trained(losses=tuple(losses), step_s=seconds / steps, ring_bytes=sent / steps)


class _Crew:
    def __init__(self, config: Config, plan: Plan) -> None:
        self._plan, self._hub, self._seen = plan, LocalHub(), 0
        self.fabrics: dict[str, LocalFabric] = {}
        self.workers = {name: Worker(_settings(name, config), fabric=self._fabric) for name in plan.workers}

    def step(self, step: int, parts: dict[str, StepBatch]) -> StepReport:
        for name, worker in self.workers.items():
            worker.feed(1, (parts[name],))
            worker.grant(1, step + 1)
        while True:
            pulse = self.workers["w0"].pulse(self._seen, LIMIT_S)
            assert pulse.reports, f"w0 says nothing in phase {pulse.phase}"
            self._seen, report = pulse.reports[0]
            if isinstance(report, StepReport):
                return report

    def start(self) -> None:
        for worker in self.workers.values():
            worker.start(Assignment(generation=1, plan=self._plan, step=0, store=("127.0.0.1", 0)))

    def _fabric(self, *, assignment: Assignment, settings: WorkerSettings) -> LocalFabric:
        fabric = LocalFabric(self._hub, me=settings.worker, generation=assignment.generation, timeout_s=LIMIT_S)
        self.fabrics[settings.worker] = fabric
        return fabric


def _settings(name: str, config: Config) -> WorkerSettings:
    folder = os.devnull  # nothing is saved
    return WorkerSettings(worker=name, config=config, run_dir=folder, checkpoint_dir=folder, device="cpu")


@contextmanager
def _workers(config: Config, plan: Plan) -> Iterator[_Crew]:
    crew = _Crew(config, plan)
    crew.start()
    try:
        yield crew
    finally:
        ends = [threading.Thread(target=worker.stop) for worker in crew.workers.values()]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
