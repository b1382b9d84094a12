"""The bubble: the share of a step in which the average stage has nothing to run, measured and as the schedule has it.

    stage 0 | F0 F1    B0--- F2 B1---    B2---        measured    1 - busy seconds / (stages x seconds of the step)
    stage 1 |    F0 B0--- F1 B1--- F2 B2---           schedule's  the same, of the timeline of the plan

Real compute runs on two workers; its schedule's own bubble is that of the measured mean duration of each stage's
actions. Stand-in stages, which wait a known time, run on as many workers as there are stages: more workers that compute
than cores would measure the operating system. Each worker is a process with raymega's own `Worker` over gloo, whose
traces of the steps are read.
"""

import multiprocessing
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import fmean, median

import torch

from raymega.comm.store import RendezvousStore
from raymega.config.choices import CHUNKS_OF
from raymega.config.load import load
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.driver.process.children import running
from raymega.pipeline.actions import Action, Kind, parse
from raymega.pipeline.timeline import timeline
from raymega.plan.plan import Plan
from raymega.plan.programs import team_programs_of, timeline_of
from raymega.worker.interface import Assignment, Ready, StepReport, StepTrace, WorkerSettings
from raymega.worker.worker import Worker
from workloads.bench.raymega_side import batch_of
from workloads.bench.settings import BubbleSettings, plan_of
from workloads.bench.stand_in import BACKWARD_S, FORWARD_S

GENERATION = 1
LIMIT_S = 300.0
PHASES = ("apply",)
Span = tuple[Action, float, float]
"""(action, start, end), in unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Of one plan. `measured`: one a step."""

    schedule: str
    stages: int
    microbatches: int
    measured: tuple[float, ...]
    own: float

    @property
    def excess(self) -> float:
        return median(self.measured) - self.own

    def __str__(self) -> str:
        low, high = min(self.measured), max(self.measured)
        return (
            f"{self.schedule} pp={self.stages} micro-batches={self.microbatches}: measured {median(self.measured):.1%} "
            f"({low:.1%} to {high:.1%}), the schedule's own {self.own:.1%}"
        )


def stand_in_bubble(settings: BubbleSettings, *, stages: int, schedule: str = "1f1b") -> Bubble:
    """Stages that wait `forward_s`, and twice as long backward, over all their chunks; a chunk has one block."""
    chunks = CHUNKS_OF[schedule][0] or 1
    forward_s = settings.forward_s / chunks
    os.environ[FORWARD_S], os.environ[BACKWARD_S] = str(forward_s), str(2 * forward_s)
    changes = {
        "model.custom": "workloads.bench.stand_in:build", "model.hidden_size": 64, "model.num_layers": stages * chunks,
        "data.seq_len": 16, "parallelism.pipeline_model_parallel_size": stages, "parallelism.schedule": schedule,
        "training.batch_size": settings.microbatches, "training.micro_batch_size": 1,
    }  # fmt: skip
    loaded = load("", source="bench", overrides=tuple(f"{key}={value}" for key, value in changes.items()))
    config = resolve(loaded, vocab_size=64, name="bench-bubble", seed=1)
    plan = plan_of(config)
    steps = run_steps(config, plan, num_steps=settings.steps)
    own = timeline_of(plan, forward_s=forward_s, backward_s=2 * forward_s).bubble_share()
    return _bubble(plan, steps, own=own)


def real_bubble(config: Config, *, num_steps: int) -> Bubble:
    """The model of `config` on its own plan."""
    plan = plan_of(config)
    steps = run_steps(config, plan, num_steps=num_steps)
    durations = _mean_durations(steps)
    programs = team_programs_of(plan)
    own = timeline(programs, durations=durations, num_stages=len(plan.layers)).bubble_share()
    return _bubble(plan, steps, own=own)


def run_steps(config: Config, plan: Plan, *, num_steps: int) -> list[list[list[Span]]]:
    """The spans of each step and worker, after one step to warm up."""
    traced = config.model_copy(
        update={"log": config.log.model_copy(update={"trace_steps": tuple(range(1, num_steps + 2))})}
    )
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["workloads.bench.bubble"])
    store = RendezvousStore.open()
    ends = [context.Pipe(duplex=False) for _ in plan.workers]
    processes = [
        context.Process(target=_work, args=(traced, plan, rank, store.address, num_steps + 1, writer))
        for rank, (_, writer) in enumerate(ends)
    ]
    try:
        with running(processes):
            for _, writer in ends:
                writer.close()  # the worker's alone, so that its death ends the reading
            of_workers = [_received(reader) for reader, _ in ends]
    finally:
        store.close()
    return [list(step) for step in zip(*of_workers, strict=True)][1:]


def _received(reader: Connection) -> list[list[Span]]:
    assert reader.poll(LIMIT_S), f"a stage has not answered within {LIMIT_S} s"
    return reader.recv()


def _work(config: Config, plan: Plan, rank: int, store: tuple[str, int], num_steps: int, writer: Connection) -> None:
    """A worker's process: run all steps, and hand in what was computed when."""
    torch.set_num_threads(1)
    settings = WorkerSettings(worker=plan.workers[rank], config=config, run_dir="", checkpoint_dir="", device="cpu")
    worker = Worker(settings)
    worker.start(Assignment(generation=GENERATION, plan=plan, step=0, store=store))
    worker.feed(GENERATION, tuple(batch_of(config, step) for step in range(num_steps)))
    worker.grant(GENERATION, num_steps)
    traces: list[StepTrace] = []
    seen = 0
    while len(traces) < num_steps:
        reports = worker.pulse(seen, LIMIT_S).reports
        seen = reports[-1][0]
        for _, report in reports:
            assert isinstance(report, Ready | StepReport | StepTrace), f"{report}"
            traces += [report] if isinstance(report, StepTrace) else []
    writer.send([_spans(trace) for trace in traces])
    worker.stop()


def _spans(trace: StepTrace) -> list[Span]:
    """The actions among what is traced."""
    rows = (row for row in trace.rows if row.lane == "compute" and row.name not in PHASES)
    return [(parse(row.name), row.start_s, row.start_s + row.duration_s) for row in rows]


def _bubble(plan: Plan, steps: list[list[list[Span]]], *, own: float) -> Bubble:
    measured = tuple(_share(workers) for workers in steps)
    return Bubble(
        schedule=plan.schedule, stages=plan.mesh.pp, microbatches=plan.num_microbatches, measured=measured, own=own
    )


def _share(workers: list[list[Span]]) -> float:
    spans = [span for worker in workers for span in worker]
    step_s = max(end for _, _, end in spans) - min(start for _, start, _ in spans)
    return 1 - sum(end - start for _, start, end in spans) / (step_s * len(workers))


def _mean_durations(steps: list[list[list[Span]]]) -> Mapping[tuple[int, Kind], float]:
    seconds = defaultdict(list)
    for workers in steps:
        for action, start, end in (span for worker in workers for span in worker):
            seconds[action.stage, action.kind].append(end - start)
    return {key: fmean(values) for key, values in seconds.items()}
