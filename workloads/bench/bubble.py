"""The bubble: the share of a step in which the average stage has nothing to run, measured and as the schedule has it.

    stage 0 | F0 F1    B0--- F2 B1---    B2---        measured    1 - busy seconds / (stages x seconds of the step)
    stage 1 |    F0 B0--- F1 B1--- F2 B2---           schedule's  the same, of the timeline of the plan

Real compute runs on two workers; its schedule's own bubble is that of the measured mean duration of each stage's
actions. Stand-in stages, which wait a known time, run on as many workers as there are stages: more workers that compute
than cores would measure the operating system. Workers are processes that run raymega's own executor over gloo.
"""

import multiprocessing
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import fmean, median

import torch

from raymega.comm.boundary_log import BoundaryLog
from raymega.comm.frames import BufferPool
from raymega.comm.gloo import GlooFabric
from raymega.comm.p2p import Inbox, Outbox
from raymega.comm.store import RendezvousStore
from raymega.config.load import load
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.layout.param_layout import is_tied
from raymega.model.stage import specs_of
from raymega.pipeline.actions import Action, Kind
from raymega.pipeline.timeline import timeline
from raymega.plan.plan import Plan
from raymega.plan.programs import team_programs_of, timeline_of
from raymega.worker.execute import Executor
from raymega.worker.state import TrainState
from raymega.worker.world import World, build_world
from workloads.bench.raymega_side import batch_of
from workloads.bench.settings import BubbleSettings, plan_of
from workloads.bench.stand_in import BACKWARD_S, FORWARD_S

GENERATION = 1
LIMIT_S = 120.0
Span = tuple[Action, float, float]
"""(action, start, end), by the clock that all processes of a machine share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Of one plan. `measured`: one a step."""

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
            f"pp={self.stages} micro-batches={self.microbatches}: measured {median(self.measured):.1%} "
            f"({low:.1%} to {high:.1%}), the schedule's own {self.own:.1%}"
        )


def stand_in_bubble(settings: BubbleSettings, *, stages: int) -> Bubble:
    """Stages that wait `forward_s`, and twice as long backward."""
    os.environ[FORWARD_S], os.environ[BACKWARD_S] = str(settings.forward_s), str(2 * settings.forward_s)
    changes = {
        "model.custom": "workloads.bench.stand_in:build", "model.hidden_size": 64, "model.num_layers": stages,
        "data.seq_len": 16, "parallelism.pipeline_model_parallel_size": stages,
        "training.batch_size": settings.microbatches, "training.micro_batch_size": 1,
    }  # fmt: skip
    loaded = load("", source="bench", overrides=tuple(f"{key}={value}" for key, value in changes.items()))
    config = resolve(loaded, vocab_size=64, name="bench-bubble", seed=1)
    plan = plan_of(config)
    steps = run_steps(config, plan, num_steps=settings.steps)
    own = timeline_of(plan, forward_s=settings.forward_s, backward_s=2 * settings.forward_s).bubble_share()
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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["workloads.bench.bubble"])
    store = RendezvousStore.open()
    ends = [context.Pipe(duplex=False) for _ in plan.workers]
    processes = [
        context.Process(target=_work, args=(config, plan, rank, store.address, num_steps + 1, writer))
        for rank, (_, writer) in enumerate(ends)
    ]
    try:
        for process in processes:
            process.start()
        for _, writer in ends:
            writer.close()  # the worker's alone, so that its death ends the reading
        of_workers = [_received(reader) for reader, _ in ends]
    finally:
        for process in processes:
            process.join(5.0)
            process.kill()
            process.join()
        store.close()
    return [list(step) for step in zip(*of_workers, strict=True)][1:]


def _received(reader: Connection) -> list[list[Span]]:
    assert reader.poll(LIMIT_S), f"a stage has not answered within {LIMIT_S} s"
    return reader.recv()


def _work(config: Config, plan: Plan, rank: int, store: tuple[str, int], num_steps: int, writer: Connection) -> None:
    """A worker's process: build its place and run the compute phase of the steps."""
    torch.set_num_threads(1)
    me = plan.workers[rank]
    fabric = GlooFabric.connect(store, me=me, generation=GENERATION, timeout_s=LIMIT_S)
    tied = is_tied(specs_of(config))
    world = build_world(plan=plan, generation=GENERATION, me=me, fabric=fabric, tied=tied)
    state = TrainState.build(config, world=world, device=torch.device("cpu"))
    log = BoundaryLog()
    executor = _executor(config, world=world, state=state, log=log)
    spans = []
    for step in range(num_steps):
        state.zero_grad()
        spans.append(executor.train(batch_of(config, step)).spans)
        log.release(through_step=step)
    writer.send(spans)
    fabric.close()


def _executor(config: Config, *, world: World, state: TrainState, log: BoundaryLog) -> Executor:
    return Executor(
        world=world,
        chunks={v: chunk.model for v, chunk in state.chunks.items()},
        inbox=Inbox(pool=BufferPool(), generation=GENERATION),
        outbox=Outbox(log=log, generation=GENERATION),
        seq_len=config.data.seq_len,
        device=torch.device("cpu"),
    )


def _bubble(plan: Plan, steps: list[list[list[Span]]], *, own: float) -> Bubble:
    measured = tuple(_share(workers) for workers in steps)
    return Bubble(stages=plan.mesh.pp, microbatches=plan.num_microbatches, measured=measured, own=own)


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
