"""One world in which workers are killed again and again, each time at another point of the same step.

world.points["w1"]                      all points of the step: `1B0`, `1B0 sent`, `compute send 1`, `reduce`
case = world.kill("w1", at="1B0")       first values, the kill, the repair, one step more
case.recovered.missing == case.missing  what the ledgers say, and what a count of calls says
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import pytest
import torch

from raymega.comm.local import WorkerKilled
from raymega.pipeline.actions import Action, Kind, source, work_of_step
from raymega.plan.plan import Plan
from raymega.plan.programs import team_name
from raymega.worker import execute, generation, reduce
from raymega.worker.buckets import Bucket
from raymega.worker.interface import StepReport
from raymega.worker.wires import MakeFabric
from tests.worker.rig import LIMIT_S, Recovered, ThreadRun, relative, thread_run, tiny_config, tiny_plan

SMALL = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_size": 6, "ffn_size": 20}
STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """What came of a kill.

    Args:
        settled: weights when the step was decided before the kill and applied after it; None: it was repaired.
        finished: what each living team had computed to its end when the step broke last, by calls.
        missing: what that leaves.
        again: how often each action of the step was run after it, over all workers.
    """

    recovered: Recovered
    reports: list[StepReport]
    settled: dict[str, torch.Tensor] | None
    weights: dict[str, torch.Tensor]
    finished: dict[str, frozenset[Action]]
    missing: frozenset[Action]
    again: Counter[Action]


@dataclass(kw_only=True)
class KillWorld:
    """Make it with `kill_world`. Nothing but the first step of a case is looked at, and nobody dies in another.

    Worlds of different layouts have different generations, by which calls are told apart.
    """

    run: ThreadRun
    plan: Plan
    generation: int = 0
    points: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    reports: list[StepReport] = field(default_factory=list)
    undisturbed: list[dict[str, torch.Tensor]] = field(default_factory=list)
    meets: Callable[[str, str], None] = lambda worker, point: None
    dies: Callable[[str], None] | None = None
    calls: dict[int, dict[str, list[Action]]] = field(default_factory=dict)
    _fatal: tuple[str, str] | None = None
    _victims: tuple[str, ...] = ()
    _died: threading.Event = field(default_factory=threading.Event)
    _phases: dict[str, str] = field(default_factory=dict)
    _ops: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def look(self) -> None:
        """Run without a kill: note the points of the first step, and what comes out."""
        self.begin()
        self.meets = lambda worker, point: self.points[worker].append(point)
        for step in range(STEPS):
            self.reports += self.run.train(self.plan, generation=self.generation, first=step, until=step + 1)
            self.undisturbed.append(self.run.weights(self.plan))
        self.meets = lambda worker, point: None
        self.end(self.plan, dead=())

    def kill(self, *victims: str, at: str) -> Case:
        """Kill all `victims` when the first of them comes to the point `at` of the first step, and go on."""
        self.begin()
        self.strike(self.plan, *victims, at=at)
        return self.go_on(self.recover(self.plan, dead=set(victims)), dead=set(victims))

    def begin(self) -> None:
        """First values, everywhere."""
        self.calls.clear()
        self._next_generation()
        self.run.assign(self.plan, generation=self.generation)

    def strike(self, plan: Plan, *victims: str, at: str, until: int = 1) -> None:
        """Kill in the first step, in the generation that stands. `until`: the steps that there is leave for."""
        self._fatal, self._victims = (victims[0], at), victims
        self.run.start(plan, until=until, generation=self.generation)
        assert self._died.wait(LIMIT_S), f"{victims[0]} does not come to {at}"
        self._died.clear()

    def recover(self, plan: Plan, *, dead: set[str]) -> Recovered:
        """Promises, ruling, repair, and the next generation."""
        self._next_generation()
        return self.run.recover(plan, dead=dead, generation=self.generation)

    def go_on(self, found: Recovered, *, dead: set[str]) -> Case:
        """Do all steps that are left."""
        settled = self.run.weights(found.plan) if found.step == 1 else None
        reports = self.run.train(found.plan, generation=self.generation, first=found.step, until=STEPS)
        finished = self.finished(dead)
        case = Case(
            recovered=found, reports=reports, settled=settled, weights=self.run.weights(found.plan),
            finished=finished, missing=self._missing(frozenset[Action]().union(*finished.values())),
            again=Counter(action for actions in self.calls[self.generation].values() for action in actions),
        )  # fmt: skip
        self.end(found.plan, dead=dead)
        return case

    def check(self, case: Case) -> None:
        """The step is what it would have been, and nothing was run again that a living team had."""
        for report in case.reports:
            expected = self.reports[report.step - 1]
            assert (report.loss, report.grad_norm) == pytest.approx((expected.loss, expected.grad_norm), rel=1e-5)
            assert report.skipped == expected.skipped
        assert all(relative(weight, self.undisturbed[-1][name]) < 1e-5 for name, weight in case.weights.items())
        if case.settled is not None:  # no sum was made anew
            assert all(torch.equal(weight, self.undisturbed[0][name]) for name, weight in case.settled.items())
            assert not case.again
            return
        assert case.recovered.kept == case.finished
        assert case.recovered.missing == case.missing
        assert case.again == dict.fromkeys(case.missing, self.plan.mesh.tp)

    def finished(self, dead: set[str]) -> dict[str, frozenset[Action]]:
        """What all shards of each living team computed to its end, in all generations but the last."""
        teams = {team_name(*at): [self.plan.workers[r] for r in self.plan.team(*at)] for at in self.plan.teams}
        done = {
            worker: {action for g, calls in self.calls.items() if g < self.generation for action in calls[worker]}
            for worker in self.plan.workers
        }
        return {
            name: frozenset.intersection(*(frozenset(done[worker]) for worker in workers))
            for name, workers in teams.items()
            if not dead & set(workers)
        }

    def _missing(self, held: frozenset[Action]) -> frozenset[Action]:
        """Every backward that no living team ran, and all that it needs and nobody holds; a part whose other is run."""
        stages = len(self.plan.layers)
        begun = {Action(a.stage, Kind.W, a.microbatch) for a in held if a.kind is Kind.I}
        held = held | {Action(a.stage, Kind.B, a.microbatch) for a in held if a.kind is Kind.I}
        ahead = list(
            work_of_step(num_stages=stages, num_microbatches=self.plan.num_microbatches, kinds=(Kind.B,)) - held
        )
        found = begun - held
        while ahead:
            action = ahead.pop()
            found.add(action)
            needs = [source(action, num_stages=stages), Action(action.stage, Kind.F, action.microbatch)]
            ahead += [need for need in needs if need is not None and need not in held and need not in found]
        return frozenset(found)

    def end(self, plan: Plan, *, dead: set[str] | tuple[()]) -> None:
        """Everyone leaves."""
        for name in plan.living:
            self.run.workers[name].abort(self.generation)
        for name in plan.living:
            self.run.leaving(name)
        self.bury(dead)

    def bury(self, dead: set[str] | tuple[()]) -> None:
        """The dead come to their end, and are workers like any other from here on."""
        for name in dead:
            self._await_death(name)
        self.run.hub.dead.clear()

    def _await_death(self, name: str) -> None:
        """A thread that is killed between two calls may see the broken group first, or have nothing to call."""
        self.run.workers[name].abort(self.generation)
        try:
            self.run.leaving(name)
        except WorkerKilled:
            return

    def _next_generation(self) -> None:
        self.generation += 1
        self.calls[self.generation] = defaultdict(list)
        self._phases.clear()
        self._ops.clear()

    def pass_by(self, worker: str, point: str) -> None:
        """A worker comes to a point of the first step: it goes on, or dies here."""
        self.meets(worker, point)
        if self._fatal == (worker, point):
            self._fatal = None
            for victim in self._victims:
                (self.dies or self.run.hub.kill)(victim)
            self._died.set()
            raise WorkerKilled(worker)

    def on_phase(self, worker: str, phase: str) -> None:
        self._phases[worker] = phase
        if phase in ("reduce", "decide", "apply", "gather"):
            self.pass_by(worker, phase)

    def phase_of(self, worker: str) -> str:
        return self._phases.get(worker, "")

    def on_op(self, worker: str, key: str, op: str) -> None:
        phase = self._phases.get(worker, "")
        if key.startswith(f"g{self.generation}/") and phase in ("compute", "reduce", "decide", "gather"):
            name = "dp all_reduce" if op == "all_reduce" and "/dp/" in key else op  # begins in the last backward
            self._ops[worker, phase, name] += 1
            self.pass_by(worker, f"{phase} {name} {self._ops[worker, phase, name]}")


@contextmanager
def kill_world(
    layout: tuple[int, int, int], *, change: Callable[[Plan], Plan] = replace, num_layers: int | None = None,
    wires: MakeFabric | None = None, schedule: str = "1f1b", chunks: int = 1, precision: str = "fp32",
    device: str = "cpu",
) -> Iterator[KillWorld]:  # fmt: skip
    """A world of (dp, tp, pp), two micro-batches for each replica."""
    dp, tp, pp = layout
    config = tiny_config(
        model={**SMALL, "num_layers": num_layers or max(2, pp * chunks)}, steps=STEPS, lr=0.02, batch_size=2 * dp,
        micro_batch_size=1, precision=precision,
    )  # fmt: skip
    plan = change(tiny_plan(config, dp=dp, tp=tp, pp=pp, schedule=schedule, chunks=chunks))
    with ExitStack() as stack:
        run = stack.enter_context(thread_run(config, num_workers=plan.mesh.size, wires=wires, device=device))
        world = KillWorld(run=run, plan=plan, generation=1000 * (100 * dp + 10 * tp + pp))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in ("forward", "backward", "add_owed"):
            patch.setattr(execute._Run, name, _watched(world, getattr(execute._Run, name)))
        patch.setattr(execute.Executor, "send", _sending(world, execute.Executor.send))
        patch.setattr(reduce.GradientSums, "_begin", _summing(world, reduce.GradientSums._begin))
        patch.setattr(generation.Generation, "_enter_phase", _told(world, generation.Generation._enter_phase))
        run.hub.on_op = world.on_op
        yield world


def _watched(world: KillWorld, real: Callable) -> Callable:
    def method(self: execute._Run, action: Action) -> None:
        here = self._executor.world
        if self._batch.step > 0 or here.generation not in world.calls:
            return real(self, action)
        world.pass_by(here.me, str(action))
        spans = len(self._work.spans)
        try:
            return real(self, action)
        finally:
            if len(self._work.spans) > spans:  # computed, whatever became of its message
                world.calls[here.generation][here.me].append(action)

    return method


def _sending(world: KillWorld, real: Callable) -> Callable:
    """A whole backward may have its weights' part to come when its gradient has left."""

    def method(self: execute.Executor, action: Action, run: execute._Run) -> None:
        real(self, action, run)
        if action.kind is Kind.B and action.stage > 0 and self.world.generation in world.calls and run._batch.step == 0:
            world.pass_by(self.world.me, f"{action} sent")

    return method


def _summing(world: KillWorld, real: Callable) -> Callable:
    def method(self: reduce.GradientSums, bucket: Bucket) -> None:
        here, number = self._world, self._begun
        if self._state.committed == 0 and here.generation in world.calls and world.phase_of(here.me) == "compute":
            world.pass_by(here.me, f"compute sum {number}")
        real(self, bucket)

    return method


def _told(world: KillWorld, real: Callable) -> Callable:
    def method(self: generation.Generation, name: str) -> None:
        real(self, name)
        if self.number in world.calls:
            is_first = self._step.state.committed == (name == "gather")
            world.on_phase(self._desk.settings.worker, name if is_first else "")

    return method
