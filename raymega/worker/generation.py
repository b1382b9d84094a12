"""One generation of one worker: build the groups, hold the state, then step after step as far as there is leave.

enter: groups, state, Ready or Moved --> run: [ leave -> batch -> step -> report -> snapshot -> evaluation ]*
                                     until it is told to leave, or a peer is gone
"""

import time
from collections import deque
from dataclasses import replace
from functools import partial

import torch

from raymega.comm.group import Fabric, GroupSpec
from raymega.comm.p2p import Outbox
from raymega.layout.param_layout import is_tied
from raymega.model.stage import specs_of
from raymega.pipeline.actions import Program
from raymega.pipeline.missing import TeamReport
from raymega.plan.repairs import RepairOrder, stages_of
from raymega.worker.after_commit import follow, trace
from raymega.worker.batches import without_rows
from raymega.worker.desk import Desk
from raymega.worker.evaluation import evaluate, is_due_after
from raymega.worker.held import take_state
from raymega.worker.interface import (
    Assignment,
    EvalReport,
    Moved,
    Ready,
    Split,
    StepBatch,
    StepReport,
    WorkerSettings,
)
from raymega.worker.move_state import Mover
from raymega.worker.orders import Leave
from raymega.worker.ruling import Constants, Rule
from raymega.worker.state import TrainState
from raymega.worker.step import Done, Step
from raymega.worker.step_report import report_of, team_report
from raymega.worker.step_work import StepWork
from raymega.worker.time_sheet import kept_share
from raymega.worker.world import build_world

COMMITS_KEPT = 256  # far above what one reporter can have told nobody of when it dies


class Generation:
    """Runs on the training thread. `work`: what is done of the step in hand; `commits`: what was told of the newest."""

    def __init__(self, *, assignment: Assignment, desk: Desk, fabric: Fabric, work: StepWork | None) -> None:
        self.number = assignment.generation
        desk.sheet.begin(self.number, is_moved=assignment.move is not None)
        self.work = work
        self.commits: deque[StepReport | EvalReport] = deque(maxlen=COMMITS_KEPT)
        self._assignment, self._desk, self._fabric, self._owes = assignment, desk, fabric, assignment.evaluate
        self._device = torch.device(desk.settings.device)
        self._order: RepairOrder | None = None
        self._outbox: Outbox | None = None

    def enter(self) -> None:
        """Build groups and state, and say so.

        Raises: CollectiveTimeout naming members that never came; GroupBroken; StateError if the state cannot be loaded.
        """
        move = self._assignment.move
        self._desk.reports.add(self._hold() if move is None else self._move())

    def _hold(self) -> Ready:
        began = time.perf_counter()
        self._build_world()
        built = time.perf_counter()
        self._desk.sheet.enter("loading")
        if not self._assignment.keep_state:
            self._desk.orders.forget_decision()
            self._forget_work()
            self._desk.copies.slots.forget()
        state = take_state(self._assignment, held=self._desk.held, settings=self._desk.settings, world=self._world)
        self._prepare(state)
        self._settle(state)
        self._step.weights.complete()
        seconds = {"build": built - began, "load": time.perf_counter() - built}
        return Ready(generation=self.number, committed=state.committed, seconds=seconds)

    def _move(self) -> Moved:
        began = time.perf_counter()
        settings = self._desk.settings
        mover = Mover.of(self._assignment, settings=settings, fabric=self._fabric)
        old = mover.settle(self._desk.held, slots=self._desk.copies.slots)
        if mover.transition.version is not None:
            self._desk.orders.forget_decision()
        self._forget_work()
        self._build_world()
        built = time.perf_counter()
        self._desk.sheet.enter("moving")
        live = old.state if old is not None else None
        state = TrainState.blank(settings.config, world=self._world, device=self._device, old=live)
        moved = mover.move(old=old, new=state)
        self._prepare(state)
        self._step.weights.complete()
        self._desk.held.offer(state)
        return replace(moved, seconds={"regroup": built - began, **moved.seconds})

    def _build_world(self) -> None:
        settings, assignment = self._desk.settings, self._assignment
        self._specs = specs_of(settings.config)
        self._world = build_world(
            plan=assignment.plan, generation=self.number, me=settings.worker, fabric=self._fabric,
            tied=is_tied(self._specs), links=assignment.links, node=node_to_tell(settings),
        )  # fmt: skip

    def _forget_work(self) -> None:
        """Nothing is done of the step after the state's; messages may have another shape from here on."""
        self.work = None
        self._desk.log.forget()

    def _prepare(self, state: TrainState) -> None:
        desk = self._desk
        desk.saves.prepare(state, world=self._world, is_awaited=self._assignment.repair is not None)
        self._outbox = Outbox(log=desk.log, generation=self.number)
        constants = Constants.of(self._specs, plan=self._assignment.plan)
        self._step = Step.build(
            Rule(config=desk.settings.config, state=state, constants=constants, rates=desk.orders.rates),
            world=self._world, outbox=self._outbox, device=self._device, chaos=desk.chaos, decided=desk.orders.decide,
            phase=self._enter_phase,
        )  # fmt: skip

    @property
    def team(self) -> GroupSpec:
        """The shards of this worker's stage and replica; once it has entered."""
        return self._world.team.spec

    def run(self) -> None:
        """Do steps until the generation is over."""
        state, desk = self._step.state, self._desk
        self._desk.sheet.enter("idle")
        while (leave := desk.orders.next_leave(self.number, state.committed)) is not None:
            if leave.has_step:
                desk.held.adopt()
                desk.copies.begin(state, is_moved=self._assignment.move is not None)
            else:
                desk.saves.save(state, generation=self.number)
            owes, self._owes = self._owes, False
            if owes and not self._evaluate(state):
                return
            if leave.has_step and not self._one_step(state, leave):
                return
            self._desk.sheet.enter("idle")
            if not desk.orders.has_leave(self.number, state.committed):
                self._step.weights.finish()

    def _one_step(self, state: TrainState, leave: Leave) -> bool:
        """Whether the generation goes on."""
        began = time.perf_counter()
        self._desk.sheet.enter("waiting-batch")
        program = self._world.program if (order := self._order) is None else order.program
        batch = self._batch("train", after_step=state.committed, index=0, program=program)
        if batch is None:
            return False
        waited = time.perf_counter()
        self._desk.chaos.begin(world=self._world, step=state.committed + 1)
        done = self._step.run(batch, work=self._begin(state, order), order=order, full=leave.full)
        if done is None:
            return False
        self.work, self._order = None, None
        done = replace(done, seconds={**done.seconds, "wait_batch": waited - began})
        try:
            done = follow(done, step=self._step, desk=self._desk, saves=leave.save)
        finally:
            self._report(done, state, began=began)  # it is committed, and others who know it may be gone
        self._desk.batches.settle(state.committed)
        trace(done, step=self._step, desk=self._desk, waited=(began, waited))
        is_due = is_due_after(state.committed, training=self._desk.settings.config.training)
        return self._evaluate(state) if is_due and self._assignment.eval_batches else True

    def _settle(self, state: TrainState) -> None:
        """Reach the step that the assignment begins after; then this worker's part of what is left of the next."""
        assignment = self._assignment
        if assignment.settle is not None and state.committed < assignment.step:
            self._step.rule.settle(assignment.settle)
            self._desk.sheet.settle(assignment.step)
            self._desk.log.release(through_step=assignment.step - 1)
            self.work = None
        assert state.committed == assignment.step, f"the state of {state.committed} steps is that of the assignment"
        if assignment.repair is None:
            self._forget_work()
        self._order = assignment.repair

    def _begin(self, state: TrainState, order: RepairOrder | None) -> StepWork:
        """The work of the step in hand: what the order keeps of it, or nothing yet."""
        old = self.work if order is not None else None
        self._desk.sheet.keep(0.0 if old is None or order is None else kept_share(old.ledger.facts, order.kept))
        fresh = StepWork.begin(step=state.committed, generation=self.number)
        self.work = fresh if old is None or order is None else old.keep(order.kept, generation=self.number)
        return self.work

    def abandon(self) -> None:
        """Give up what travels; once the groups are closed."""
        if self._outbox is not None:
            self._outbox.abandon()

    def report_work(self) -> TeamReport | None:
        """What is done of the step after the state's, for a repair; None for a worker without a part in the plan."""
        plan, work = self._assignment.plan, self.work
        if self._desk.settings.worker not in plan.living:
            return None
        if self._device.type == "cuda":  # behind an aborted kernel the ledger says more than is true
            work = None
        stages = stages_of(plan, plan.coord_of(self._desk.settings.worker).stage)
        return team_report(work, stages=stages, messages=self._desk.log.messages)

    def _enter_phase(self, name: str) -> None:
        if name == "decide":
            self._desk.sheet.enter("copies")
            self._desk.copies.hold_up()
        self._desk.sheet.enter(name)
        self._desk.chaos.phase(name)

    def _batch(self, split: Split, *, after_step: int, index: int, program: Program) -> StepBatch | None:
        """The batch as this worker needs it for `program`: stages between the ends need none."""
        if not self._world.has_ends:
            return without_rows(split, after_step=after_step, index=index)
        return self._desk.batches.take(
            (split, after_step, index), microbatches=tuple({action.microbatch for action in program}),
            size=self._assignment.plan.microbatch_size, left=lambda: not self._desk.orders.is_current(self.number),
        )  # fmt: skip

    def _evaluate(self, state: TrainState) -> bool:
        self._desk.sheet.enter("evaluate")
        self._step.weights.finish()
        valid = partial(self._batch, "valid", after_step=state.committed, program=self._world.program)
        batches = (valid(index=index) for index in range(self._assignment.eval_batches))
        report = evaluate(batches, executor=self._step.executor, world=self._world, after_step=state.committed)
        if report is not None:
            self._tell(report)
        return self._desk.orders.is_current(self.number)

    def _report(self, done: Done, state: TrainState, *, began: float) -> None:
        step_s = time.perf_counter() - began
        self._tell(report_of(done, state=state, generation=self.number, step_s=step_s))

    def _tell(self, report: StepReport | EvalReport) -> None:
        self.commits.append(report)
        if self._world.is_root:
            self._desk.reports.add(report)


def node_to_tell(settings: WorkerSettings) -> str | None:
    """This worker's node, where gradients are coded between nodes only."""
    return settings.node if settings.config.parallelism.grad_compression_between == "nodes" else None
