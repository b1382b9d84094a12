"""Workers of several plans, all of them up, of which one plan's at a time does a block of steps.

round    0        1        2
plans    a b c    c b a    a b c      the order turns, so that a drift of the machine favours nobody
block    w s s s                      a step lasts from one commit to the next; the first warms up, and does not count

A plan that is not on uses no processor. Each worker is a process with raymega's own `Worker` over gloo.
"""

import multiprocessing
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import torch

from raymega.comm.store import RendezvousStore
from raymega.config.schema import Config
from raymega.driver.process.children import running
from raymega.plan.plan import Plan
from raymega.worker.interface import Assignment, StepReport, WorkerSettings
from raymega.worker.worker import Worker
from workloads.bench.raymega_side import batch_of
from workloads.bench.settings import plan_of

GENERATION = 1
BLOCK = 4  # steps, the first of which warms up
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Seconds of each step, and of processors of all workers together, a step."""

    wall_s: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)


def steps_in_turn(configs: Mapping[str, Config], *, rounds: int) -> dict[str, Steps]:
    """Run a block of each config's steps in each round, and one before that warms up."""
    found = {name: Steps() for name in configs}
    with ExitStack() as stack:
        crews = {name: _opened(stack, config) for name, config in configs.items()}
        for number in range(rounds + 1):
            for name in list(crews) if number % 2 else list(crews)[::-1]:
                committed_t, used_s = _block(crews[name], first=number * BLOCK)
                if number:
                    found[name].wall_s.extend(after - before for before, after in pairwise(committed_t))
                    found[name].processor_s.append(used_s / BLOCK)
    return found


def _opened(stack: ExitStack, config: Config) -> Sequence[Connection]:
    """The workers of a config's plan, up; they end with `stack`."""
    plan = plan_of(config)
    store = RendezvousStore.open()
    stack.callback(store.close)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["workloads.bench.in_turn"])
    ends = [context.Pipe() for _ in plan.workers]
    processes = [
        context.Process(target=_serve, args=(config, plan, rank, store.address, theirs))
        for rank, (_, theirs) in enumerate(ends)
    ]
    stack.enter_context(running(processes))
    ours = [end for end, _ in ends]
    for end in ours:
        _heard(end)
        stack.callback(end.send, None)
    return ours


def _block(crew: Sequence[Connection], *, first: int) -> tuple[list[float], float]:
    """When its steps were committed, as the root tells, and the processors' seconds of all workers."""
    _all(crew, (first, first + BLOCK))
    for end in crew:
        end.send("go")
    committed_t = _heard(crew[0])
    return committed_t, sum(_all(crew, "done"))


def _all(crew: Sequence[Connection], order: object) -> list[Any]:  # Any: whatever is answered
    for end in crew:
        end.send(order)
    return [_heard(end) for end in crew]


def _heard(end: Connection) -> Any:
    assert end.poll(LIMIT_S), f"a worker said nothing for {LIMIT_S} s"
    return end.recv()


def _serve(config: Config, plan: Plan, rank: int, store: tuple[str, int], pipe: Connection) -> None:
    """A worker's process: it is fed a block, says so, and runs it when it is told to."""
    torch.set_num_threads(1)
    worker = Worker(
        WorkerSettings(worker=plan.workers[rank], config=config, run_dir="", checkpoint_dir="", device="cpu")
    )
    worker.start(Assignment(generation=GENERATION, plan=plan, step=0, store=store))
    seen = worker.pulse(0, LIMIT_S).reports[-1][0]
    pipe.send("up")
    while (order := pipe.recv()) is not None:
        first, end = order
        worker.feed(GENERATION, tuple(batch_of(config, step) for step in range(first, end)))
        pipe.send("fed")
        pipe.recv()
        used_s = time.process_time()
        worker.grant(GENERATION, end)
        if rank == 0:  # who reports for all
            seen, committed_t = _committed(worker, seen, until=end)
            pipe.send(committed_t)
        pipe.recv()
        pipe.send(time.process_time() - used_s)
    worker.stop()


def _committed(worker: Worker, seen: int, *, until: int) -> tuple[int, list[float]]:
    """What was heard of last, and when the steps up to `until` were committed."""
    committed_t, done = list[float](), False
    while not done:
        reports = worker.pulse(seen, LIMIT_S).reports
        assert reports, f"no step for {LIMIT_S} s"
        for seen, report in reports:  # noqa: B007  the last one is what was heard of
            assert isinstance(report, StepReport), f"{report}"
            committed_t.append(report.t)
            done |= report.step >= until
    return seen, committed_t
