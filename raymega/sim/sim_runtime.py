"""Simulated hands: they carry out what the brain says in virtual time, on workers that only have a state and a clock.

    StartWorkers        up after start_s
    AssignPlan          ready after regroup_s; with a load, after the bytes of a worker; with `move`, after switch_s and
                        those of the busiest one; of a run that begins, after first_s
    Grant               steps run on the clock of `sim.step_clock`, one commit after the other
    a node goes         after detect_s its workers are told as lost; survivors leave when told, with their ledgers
    save_at             the step is held up by the snapshot; parts are saved beside the next ones

What belonged to a generation or a step that broke never happens. Nothing fails that the trace does not fail.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from raymega.control.commands import (
    AbortGeneration,
    AssignPlan,
    Command,
    Finish,
    Grant,
    PublishCheckpoint,
    Quiet,
    StartWorkers,
    StopWorkers,
)
from raymega.control.events import (
    Event,
    StepCommitted,
    WorkersReady,
)
from raymega.control.states import Seat
from raymega.pipeline.actions import Action
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.sim import telling
from raymega.sim.agenda import Agenda
from raymega.sim.bulk import BulkStep
from raymega.sim.saving import Saving
from raymega.sim.sim_nodes import SimNodes
from raymega.sim.state_moves import SimMoves
from raymega.sim.step_clock import StepClock, Underway
from raymega.sim.telling import NO_STATE
from raymega.sim.times import Times

Happen = Callable[[], Event | None]


@dataclass(slots=True, kw_only=True)
class SimHands:
    """`control.runtime.Runtime` in virtual time.

    Args:
        version: (steps, generation that decided them) of the state that all hold.
        underway: the step that runs.
        broken: the ledgers when the newest generation broke; None: it is whole.
        left_s: seconds of passes that were left of the step then, where it is counted in bulk.
        breaks: grows with each break, so that what was begun before is known.
        quiet: as the newest leave had it, until anything else is told of.
        most_at_once: steps that are told of in one event; None: as many as the brain allows.
    """

    agenda: Agenda[Event]
    clock: StepClock
    moves: SimMoves
    times: Times
    tokens_per_step: int
    nodes: SimNodes = field(default_factory=SimNodes)
    generation: int = -1
    plan: Plan | None = None
    assigned: AssignPlan | None = None
    version: tuple[int, int] = (0, 0)
    until: int = 0
    save_at: frozenset[int] = frozenset()
    underway: Underway | BulkStep | None = None
    left_s: float = 0.0
    broken: Mapping[Place, frozenset[Action]] | None = None
    left: set[WorkerId] = field(default_factory=set)
    breaks: int = 0
    quiet: Quiet | None = None
    most_at_once: int | None = None

    @property
    def _saving(self) -> Saving:
        return Saving(moves=self.moves, times=self.times, nodes=self.nodes)

    def now(self) -> float:
        return self.agenda.now

    def next_event(self, timeout_s: float) -> Event | None:
        told = self.agenda.next(self.agenda.now + timeout_s)
        self.quiet = None
        return told

    def carry_out(self, command: Command) -> None:
        match command:
            case StartWorkers():
                self._start(command.seats)
            case StopWorkers():
                self.nodes.end(command.workers)
            case AssignPlan():
                self._assign(command)
            case AbortGeneration(generation=generation) if generation == self.generation:
                self._leave()
            case Grant(generation=generation) if generation == self.generation:
                self.until = max(self.until, command.until)
                self.save_at |= set(command.save_at)
                self.quiet = command.quiet
                if self.plan is not None and self.version[0] in command.save_at:
                    self._after(*self._saving.of(self.plan, generation=generation, step=self.version[0]))
                self._run()
            case PublishCheckpoint():
                publish = lambda: self._saving.published(command, generation=self.generation)  # noqa: E731
                self._after(self.times.publish_s, publish)
            case Finish():
                self.until = 0

    def come(self, nodes: Mapping[str, int]) -> Event:
        """These nodes are there from now on."""
        self.nodes.come(nodes)
        return self.nodes.told()

    def go(self, names: tuple[str, ...]) -> Event | None:
        """These nodes are gone: whoever waits for their workers finds out."""
        gone, members, silent_s = self.nodes.go(names), self._members(), self.times.detect_s
        if any(seat.worker in members for seat in gone):
            self._break()
        if gone:
            self._after(silent_s, _saying(telling.lost(gone, silent_s=silent_s)))
        self._after(silent_s, self.nodes.told)
        return None

    def _start(self, seats: Sequence[Seat]) -> None:
        started = [seat.worker for seat in seats if self.nodes.start(seat, at_s=self.agenda.now)]
        lost = [seat for seat in seats if seat.node not in self.nodes.devices]
        if started:
            self._after(self.times.start_s, partial(self.nodes.bear, started))
        if lost:
            self._after(self.times.detect_s, _saying(telling.lost(lost, silent_s=self.times.detect_s)))

    def _members(self) -> frozenset[WorkerId]:
        if self.assigned is None or self.plan is None:
            return frozenset()
        move = self.assigned.move
        return frozenset(self.plan.living if move is None else move.members(self.plan))

    def _assign(self, command: AssignPlan) -> None:
        plan = command.plan
        self.breaks += 1
        self.generation, self.plan, self.assigned = command.generation, plan, command
        self.broken, self.left, self.save_at, self.until = None, set(), frozenset(), command.step
        if command.move is not None:
            self.underway = None
            return self._move(command)
        if not command.keep_state:
            self.version = (command.step, 0)
        self.underway = self.clock.begin(plan, command.repair, left_s=self.left_s)
        return self._in_generation(self._ready_s(command), partial(self._ready, plan))

    def _ready_s(self, command: AssignPlan) -> float:
        """Until groups stand and state is there."""
        up_s = self.nodes.up_s(command.plan.living, start_s=self.times.start_s)
        seconds = self.times.regroup_s + max(0.0, up_s - self.agenda.now)
        if not self.nodes.born:
            seconds = self.times.first_s
        if command.checkpoint is not None and not command.keep_state:
            seconds += self._saving.load_s(command.plan)
        return seconds

    def _ready(self, plan: Plan) -> Event:
        self.nodes.born |= set(plan.living)
        return WorkersReady(generation=self.generation)

    def _move(self, command: AssignPlan) -> None:
        assert command.move is not None, "it is a transition"
        num_bytes = self.moves.busiest_bytes(command.move, command.plan)
        move_s = num_bytes / self.times.move_bytes_per_s
        moved = telling.moved(command, command.move, num_bytes=num_bytes, move_s=move_s)
        self._in_generation(self.times.switch_s + move_s, _saying(moved))

    def _run(self) -> None:
        """Begin a step, if there is leave and none runs."""
        step, plan = self.version[0], self.plan
        if plan is None or self.broken is not None or step >= self.until:
            return
        if self.assigned is not None and self.assigned.move is not None:
            self.assigned = AssignPlan(generation=self.generation, plan=plan, step=step, checkpoint=None)
            self.underway = None
        if self.underway is None:
            self.underway = self.clock.begin(plan, {})
        elif self.underway.started_t is not None:
            return
        self.underway.started_t = self.agenda.now
        snapshot_s = self._saving.snapshot_s(plan) if step + 1 in self.save_at else 0.0
        takes_s = self.underway.total_s + snapshot_s + self.times.gap_s
        self._in_generation(takes_s, partial(self._commit, step + 1, snapshot_s))

    def _commit(self, step: int, snapshot_s: float) -> Event:
        assert self.underway is not None, "it ran"
        assert self.plan is not None, "by a plan"
        ran, count = self.underway, 1
        while self._goes_on(step, ran, count):
            step, count, self.agenda.now = step + 1, count + 1, self.agenda.now + ran.total_s + self.times.gap_s
        phases = {name: seconds * ran.total_s / ran.cost.step_s for name, seconds in ran.cost.phases.items()}
        self.version, self.underway = (step, self.generation), None
        if step in self.save_at:
            self._after(*self._saving.of(self.plan, generation=self.generation, step=step))
        self._run()
        return StepCommitted(
            generation=self.generation, step=step, loss=0.0, grad_norm=0.0, lr=0.0, tokens=self.tokens_per_step,
            skipped=False, step_s=ran.total_s + snapshot_s, t=self.agenda.now,
            seconds={**phases, "snapshot": snapshot_s}, count=count,
        )  # fmt: skip

    def _goes_on(self, step: int, ran: Underway | BulkStep, count: int) -> bool:
        """Whether the next step is like the one that is done, ends before anything else happens, and need not wait."""
        quiet, most = self.quiet, self.most_at_once
        if quiet is None or step >= quiet.step or self.agenda.now >= quiet.t or (most is not None and count >= most):
            return False
        return self.agenda.now + ran.total_s + self.times.gap_s < self.agenda.free_until_s

    def _break(self) -> None:
        """What runs ends here, with the ledgers that it has."""
        if self.broken is not None or self.plan is None:
            return
        self.breaks += 1
        ran = self.underway
        self.broken = {} if ran is None else ran.done_at(self.agenda.now)
        self.left_s = 0.0 if ran is None else ran.left_s(self.agenda.now)

    def _leave(self) -> None:
        """Everyone who lives says what it has."""
        self._break()
        assert self.assigned is not None, "only what was assigned is aborted"
        fresh = sorted(self._members() & set(self.nodes.seats) - self.left)
        self.left |= set(fresh)
        self._after(self.times.answer_s, partial(self._answer, fresh, self.generation))

    def _answer(self, workers: Sequence[WorkerId], generation: int) -> Event | None:
        assert self.assigned is not None, "they have left what was assigned"
        versions = {w: self.version if w in self.nodes.born else NO_STATE for w in workers if w in self.nodes.seats}
        return telling.left(versions, generation=generation, assigned=self.assigned, ledgers=self.broken or {})

    def _after(self, seconds: float, happen: Happen) -> None:
        self.agenda.put(self.agenda.now + seconds, happen)

    def _in_generation(self, seconds: float, happen: Happen) -> None:
        then = self.breaks
        self._after(seconds, lambda: happen() if then == self.breaks else None)


def _saying(event: Event) -> Happen:
    return lambda: event
