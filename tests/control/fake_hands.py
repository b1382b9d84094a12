"""Hands in virtual time: workers that step, save, die and answer, without a process or a second of waiting.

A run with losses takes milliseconds. One generation runs at a time, a step takes `step_s`, and everything that happens
is an event at a virtual time; what belonged to a generation or a step that broke never happens.
"""

import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from raymega.control.arbitration import Decided, Version
from raymega.control.commands import (
    AbortGeneration,
    AssignPlan,
    Command,
    Evaluate,
    Finish,
    Grant,
    PublishCheckpoint,
    Rewind,
    StartWorkers,
    StopWorkers,
    WriteStep,
)
from raymega.control.decision import Brain
from raymega.control.events import (
    CheckpointFailed,
    CheckpointPublished,
    Evaluated,
    Event,
    GenerationLeft,
    NodesChanged,
    ShardsSaved,
    StateMoved,
    StepCommitted,
    WorkerBorn,
    WorkerLost,
    WorkersReady,
)
from raymega.control.policy import Rules
from raymega.control.states import Moving, NodeDevices, Seat, State, plan_of, seats_of
from raymega.layout.certificate import StatePart
from raymega.metrics import StepRecord
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import Plan
from raymega.plan.repairs import stages_of
from raymega.plan.uneven import work_of
from tests.control.fake_plans import FakeMoves, plan_for

__all__ = ["FakeHands", "brain", "moving_brain", "nodes", "plan_for"]

LIMIT_T = 20_000.0
WHOLE_WORK = 6.0
RULES = Rules(
    steps=20, batch_size=8, save_every=5, eval_every=0, min_devices=1, max_restarts=3, max_nonfinite_steps=2,
    save_timeout_s=60.0, start_timeout_s=30.0, lease_s=2.0,
)  # fmt: skip


def brain(**changes: int | float) -> Brain:
    return Brain(rules=replace(RULES, **changes), plan_for=plan_for)


def moving_brain(**changes: int | float) -> Brain:
    """One whose plans follow each other on the live run."""
    return replace(brain(**changes), moves=FakeMoves())


def nodes(*devices: int) -> tuple[NodeDevices, ...]:
    return tuple(NodeDevices(node=f"n{index}", devices=number) for index, number in enumerate(devices))


def val_loss(step: int) -> float:
    """Of the validation after `step`."""
    return 5.0 + 0.01 * step


def lacks_loss(records: Sequence[StepRecord], rules: Rules) -> list[int]:
    """Steps whose record should have a validation loss and has not, or has another; the last one may have none."""
    due = [record for record in records[:-1] if rules.is_evaluated(record.step)]
    return [record.step for record in due if record.val_loss != val_loss(record.step)]


@dataclass(kw_only=True)
class FakeHands:
    """The cluster `nodes`, and what is going to go wrong in it.

    Args:
        kill_at: steps at which (right before their commit) the worker of that rank dies, each time they are reached.
        kill_once: the same, but only the first time.
        break_once: steps at which the groups break although nobody dies.
        fits: step -> samples of a micro-batch that fit into the memory of its first worker.
        kill_after, break_after: the same at any time, whatever goes on: (seconds, rank), seconds.
        tell_at: what is told right with a step's commit.
        by_work: `step_s` is of two replicas of two stages; a step of another plan takes as much more as its work.
        work: workers say what they have done, so that a broken step can be repaired.
        ahead: steps at whose death the others have decided already, but for the first and who dies.
        kill_in_move: (number of the transition, member) that dies in it.
        spoil_move: numbers of transitions in which one member ends with another state.
        unborn: workers that never come to life.
        move_s: what a member takes to send and receive.
        eval_s: what a validation takes, at the end of which everybody has the loss.
        jitter: seeds by how much what different workers say overtakes each other; 0: not at all.
    """

    nodes: tuple[NodeDevices, ...]
    step_s: float = 0.1
    start_s: float = 2.0
    detect_s: float = 0.02
    save_s: float = 0.3
    kill_at: dict[int, int] = field(default_factory=dict)
    kill_once: dict[int, int] = field(default_factory=dict)
    break_once: set[int] = field(default_factory=set)
    fits: dict[int, int] = field(default_factory=dict)
    kill_after: list[tuple[float, int]] = field(default_factory=list)
    break_after: list[float] = field(default_factory=list)
    tell_at: dict[int, Event] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    save_fails: bool = False
    by_work: bool = False
    work: bool = False
    ahead: set[int] = field(default_factory=set)
    kill_in_move: dict[int, int] = field(default_factory=dict)
    spoil_move: set[int] = field(default_factory=set)
    unborn: set[str] = field(default_factory=set)
    move_s: float = 0.2
    eval_s: float = 0.05
    jitter: int = 0

    clock: float = 1000.0
    seats: dict[str, Seat] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    generation: int = -1
    plan: Plan | None = None
    step: int = 0
    until: int = 0
    save_at: set[int] = field(default_factory=set)
    eval_at: set[tuple[int, int]] = field(default_factory=set)
    owes_validation: bool = False
    validated: Evaluated | None = None
    running: bool = False
    held: dict[str, Version] = field(default_factory=dict)
    decided: Decided | None = None
    left: set[str] = field(default_factory=set)
    born: set[str] = field(default_factory=set)
    move: AssignPlan | None = None
    num_moves: int = 0
    metrics: list[StepRecord] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    finish: Finish | None = None
    _breaks: int = 0
    _queue: list[tuple[float, int, Callable[[], Event | None]]] = field(default_factory=list)
    _count: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self._random = random.Random(self.jitter)
        self.tell(0.0, NodesChanged(nodes=self.nodes))
        for after_s, rank in self.kill_after:
            self._later(after_s, partial(self._kill_any, rank))
        for after_s in self.break_after:
            self._later(after_s, partial(self._leave, "connection timed out"))

    def adopt(self, state: State) -> None:
        """Another controller, which knows `state`, listens from here on.

        Whom it does not know is ended; who never came to be, or has died unheard, is told as lost. Who never had its
        place in the newest generation will say so when it is asked.
        """
        known = {seat.worker: seat for seat in seats_of(state)}
        self.seats = {worker: seat for worker, seat in self.seats.items() if worker in known}
        for worker, seat in known.items():
            if worker not in self.seats:
                self.tell(0.0, WorkerLost(worker=worker, node=seat.node, cause="not there any more", absent=True))
        plan = plan_of(state)
        if plan is not None and state.story.generation > self.generation:
            self.generation, self.plan, self.left, self.running = state.story.generation, plan, set(), False
            self.move = None
            if isinstance(state, Moving):
                move = state.move.transition
                self.move = AssignPlan(
                    generation=self.generation, plan=plan, step=state.move.step, checkpoint=None, move=move
                )
            self._breaks += 1

    def now(self) -> float:
        return self.clock

    def tell(self, after_s: float, event: Event) -> None:
        self._later(after_s, lambda: event)

    def next_event(self, timeout_s: float) -> Event | None:
        end = self.clock + timeout_s
        assert end < LIMIT_T, "the run hangs"
        while self._queue and self._queue[0][0] <= end:
            t, _, happen = heapq.heappop(self._queue)
            self.clock = max(self.clock, t)
            if (event := happen()) is not None:
                return event
        self.clock = end
        return None

    def carry_out(self, command: Command) -> None:
        self.commands.append(command)
        match command:
            case StartWorkers():
                for seat in command.seats:
                    assert seat.worker not in self.started, "a worker's id is never used again"
                    self.started.append(seat.worker)
                    self.seats[seat.worker] = seat
                    self._later(self.start_s + self._jitter(), partial(self._bear, seat.worker))
            case StopWorkers():
                for worker in command.workers:
                    self.seats.pop(worker, None)
            case AssignPlan():
                self._assign(command)
            case AbortGeneration(generation=generation) if generation == self.generation:
                self._leave("told to")
            case Grant(generation=generation) if generation == self.generation:
                self._end_move()
                self.until, self.save_at = max(self.until, command.until), self.save_at | set(command.save_at)
                if self.step in command.save_at:
                    self._save()
                if self.owes_validation:
                    self._evaluate()
                self._go_on()
            case Evaluate():
                self.eval_at.add((command.generation, command.after_step))
            case PublishCheckpoint():
                self._later(0.05, lambda: self._publish(command))
            case WriteStep():
                assert not self.metrics or command.record.step == self.metrics[-1].step + 1, "each step once, in order"
                self.metrics.append(command.record)
            case Rewind():
                self.metrics = [record for record in self.metrics if record.step <= command.step]
            case Finish():
                assert self.finish is None, "a run ends once"
                self.finish = command

    def _assign(self, command: AssignPlan) -> None:
        assert command.generation > self.generation
        if command.move is not None:
            return self._move(command)
        self.move, self.validated, self.owes_validation = None, None, command.evaluate
        self.born |= set(command.plan.living)
        fresh = any(worker not in self.left for worker in command.plan.living)
        self._hold(command)
        self.generation, self.plan, self.running = command.generation, command.plan, True
        self.step = self.until = command.step
        self.save_at, self.left = set(), set()
        ready = WorkersReady(generation=self.generation)
        self._later(self.start_s if fresh else 0.1, self._in_generation(lambda: ready))
        return None

    def _bear(self, worker: str) -> Event | None:
        if worker not in self.seats or worker in self.unborn:
            if worker in self.seats:
                self.kill(worker, breaks=worker in self._members())
            return None
        self.born.add(worker)
        return WorkerBorn(worker=worker)

    def _move(self, command: AssignPlan) -> None:
        """Everyone tells of its part; the old state stays until leave is given."""
        assert command.move is not None
        assert command.step == self.step == self.until, "all stand at the boundary"
        living = set(self.plan.living if self.plan else ())
        assert living & set(self.seats) <= set(command.move.senders) <= living, "of a death nobody may have heard yet"
        self.generation, self.plan, self.running, self.move = command.generation, command.plan, False, command
        self.save_at, self.left, self.num_moves = set(), set(), self.num_moves + 1
        self.validated, self.owes_validation = None, command.evaluate
        members = self._members()
        assert set(members) <= self.born, "nobody is waited for"
        for index, worker in enumerate(members):
            bad = self.num_moves in self.spoil_move and index == 0
            part = StatePart(
                worker=worker, step=self.step - bad, skipped=0, position=0, lr=0.0, updates=0, before=(), after=()
            )
            moved = StateMoved(worker=worker, generation=self.generation, part=part, bytes_received=5_000_000)
            self._later(self.move_s + self._jitter(), self._in_generation(partial(self._has_moved, moved)))
        if self.num_moves in self.kill_in_move:
            victim = members[self.kill_in_move[self.num_moves] % len(members)]
            self._later(self.move_s / 2, self._in_generation(partial(self.kill, victim)))

    def _has_moved(self, moved: StateMoved) -> StateMoved | None:
        """Whoever gets a state gets its version with it; the old one stays beside it. The dead say nothing."""
        if moved.worker not in self.seats:
            return None
        assert self.move is not None
        assert self.move.move is not None
        self.held[moved.worker] = next(
            held for held in map(self.held.__getitem__, self.move.move.senders) if held.step == self.step
        )  # one that died before it had decided the step sends nothing
        return moved

    def _end_move(self) -> None:
        """The first leave: the new state counts."""
        if self.move is not None:
            self.move, self.running = None, True

    def _members(self) -> tuple[str, ...]:
        if self.move is not None and self.move.move is not None:
            return self.move.move.members(self.move.plan)
        return self.plan.living if self.plan is not None else ()

    def _hold(self, command: AssignPlan) -> None:
        """The state that the workers have: their own, one decision on, or loaded."""
        if not command.keep_state:
            self.decided = None
            self.held = dict.fromkeys(command.plan.living, Version(step=command.step, generation=0))
            return
        for worker in command.plan.living:
            if self.held[worker].step < command.step:
                assert command.settle is not None, f"{worker} cannot reach step {command.step}"
                self.held[worker] = command.settle.version
        assert {self.held[worker].step for worker in command.plan.living} == {command.step}
        assert not command.repair or set(command.repair) == set(command.plan.living)

    def _decide(self, workers: Iterable[str]) -> None:
        version = Version(step=self.step + 1, generation=self.generation)
        self.decided = Decided(version=version, facts=version.step.to_bytes(4, "big"))
        self.held.update(dict.fromkeys(workers, version))

    def _go_on(self) -> None:
        if self.running and self.step < self.until:
            self.running = False  # a step is underway; nothing else starts one
            self._later(self._takes_s(), self._in_generation(self._commit))

    def _commit(self) -> Event | None:
        assert self.plan is not None
        step = self.step + 1
        rank = self.kill_once.pop(step, None)
        rank = self.kill_at.get(step) if rank is None else rank
        if rank is not None:
            return self._die(self.plan.living[rank % len(self.plan.living)])
        if step in self.break_once:
            self.break_once.remove(step)
            self._leave("connection reset by peer")
            return None
        if self.fits.get(step, self.plan.microbatch_size) < self.plan.microbatch_size:
            self._leave("out of memory", short=self.plan.living[0])
            return None
        self._decide(self.plan.living)
        self.step, self.running = step, True
        if step in self.save_at:
            self._save()
        if (self.generation, step) in self.eval_at:
            self._evaluate()
        if step in self.tell_at:
            self.tell(0.0, self.tell_at.pop(step))
        self._go_on()
        return self._committed(step)

    def _evaluate(self) -> None:
        """Nobody begins the next step before its end."""
        assert (self.generation, self.step) in self.eval_at, "the rows are on their way"
        self.running, self.owes_validation = False, False
        self._later(self.eval_s, self._in_generation(self._has_evaluated))

    def _has_evaluated(self) -> Event | None:
        """The first worker tells of it before it commits the next step, unless it dies first."""
        assert self.plan is not None
        loss = Evaluated(generation=self.generation, after_step=self.step, loss=val_loss(self.step), tokens=100)
        self.validated, self.running = loss, True
        first, late_s = self.plan.living[0], min(self._jitter(), 0.5 * self.step_s)
        self._later(late_s, lambda: loss if first in self.seats else None)
        self._go_on()
        return None

    def _save(self) -> None:
        """Whoever is lost in the meantime has not saved its part."""
        for worker in self.plan.living if self.plan is not None and not self.save_fails else ():
            saved = ShardsSaved(worker=worker, generation=self.generation, step=self.step)
            self._later(self.save_s + self._jitter(), lambda s=saved: s if s.worker in self.seats else None)

    def _die(self, worker: str) -> Event | None:
        """In mid-step, or right after others have decided it; the hands tell of a commit that anyone tells of."""
        assert self.plan is not None
        if worker not in self.seats:
            return None  # it is dead already, which is about to be heard of
        step = self.step + 1
        if self.work and step in self.ahead:
            self._decide([other for other in self.plan.living[1:] if other != worker])
            if any(self.held[other].step == step for other in self.plan.living if other != worker):
                self.kill(worker)
                self.step = step
                return self._committed(step)
        self.kill(worker)
        return None

    def _committed(self, step: int) -> StepCommitted:
        return StepCommitted(
            generation=self.generation, step=step, loss=7.0 - 0.1 * step, grad_norm=1.0, lr=1e-3, tokens=800,
            skipped=step in self.skipped, step_s=self._takes_s(), t=self.clock,
            seconds={"compute": self._takes_s() * 0.9}, decided=self.decided if self.work else None,
        )  # fmt: skip

    def _takes_s(self) -> float:
        assert self.plan is not None
        return self.step_s * work_of(self.plan) / WHOLE_WORK if self.by_work else self.step_s

    def _kill_any(self, number: int) -> None:
        if self.seats:
            self.kill(sorted(self.seats)[number % len(self.seats)])

    def kill(self, worker: str, *, breaks: bool = True) -> None:
        """The process of `worker` is gone, if it was not before; its peers notice by their broken connections."""
        seat = self.seats.pop(worker, None)
        if seat is None:
            return
        self.tell(self.detect_s + self._jitter(), WorkerLost(worker=worker, node=seat.node, cause="SIGKILL"))
        if breaks:
            self._leave("connection closed by peer")

    def _leave(self, reason: str, *, short: str = "") -> None:
        self.running, generation, step = False, self.generation, self.step
        self._breaks += 1
        for worker in self._members():
            if worker in self.seats and worker not in self.left:
                self.left.add(worker)
                event = self._left(worker, generation=generation, reason=reason, step=step)
                event = replace(event, short_of_memory="in compute (2 GB)" if worker == short else "")
                after_s, loss = 0.03 + self._jitter(), self.validated
                if loss is not None:
                    self._later(after_s, lambda loss=loss, w=worker: loss if w in self.seats else None)
                self._later(after_s, lambda event=event: event if event.worker in self.seats else None)

    def _left(self, worker: str, *, generation: int, reason: str, step: int) -> GenerationLeft:
        if self.move is not None:
            assert self.move.move is not None
            return self._left_move(worker, self.move.move.senders, generation=generation, reason=reason)
        if not self.work:
            return GenerationLeft(worker=worker, generation=generation, reason=reason, committed=step)
        assert self.plan is not None
        if worker not in self.held:
            return GenerationLeft(worker=worker, generation=generation, reason=reason, committed=-1)
        held, stage = self.held[worker], self.plan.coord_of(worker).stage
        decided = self.decided if self.decided is not None and self.decided.version == held else None
        return GenerationLeft(
            worker=worker, generation=generation, reason=reason, committed=held.step, decided_in=held.generation,
            decided=decided, work=TeamReport(stages=stages_of(self.plan, stage)),
        )  # fmt: skip

    def _left_move(self, worker: str, senders: tuple[str, ...], *, generation: int, reason: str) -> GenerationLeft:
        """With the state that it sends from, or the one that it has got; nobody has begun a step."""
        held, plan = self.held.get(worker), self.plan
        assert plan is not None
        if held is None or (worker not in senders and held.step != self.step):
            return GenerationLeft(worker=worker, generation=generation, reason=reason, committed=-1)
        stages = stages_of(plan, plan.coord_of(worker).stage) if worker in plan.living else ()
        work = TeamReport(stages=stages) if self.work and worker in plan.living else None
        return GenerationLeft(
            worker=worker, generation=generation, reason=reason, committed=held.step, decided_in=held.generation,
            work=work,
        )  # fmt: skip

    def _in_generation(self, happen: Callable[[], Event | None]) -> Callable[[], Event | None]:
        then = self._breaks, self.generation
        return lambda: happen() if then == (self._breaks, self.generation) else None

    def _jitter(self) -> float:
        return self._random.uniform(0.0, 0.2) if self.jitter else 0.0

    def _publish(self, command: PublishCheckpoint) -> Event:
        if command.generation != self.generation:
            return CheckpointFailed(step=command.step, reason="a newer generation is there")
        uri = f"mem://checkpoints/step-{command.step}"
        return CheckpointPublished(step=command.step, uri=uri, tokens_total=command.tokens_total)

    def _later(self, after_s: float, happen: Callable[[], Event | None]) -> None:
        heapq.heappush(self._queue, (self.clock + after_s, next(self._count), happen))
