"""What the hands of a real run took, from its journal: so that the next run can be simulated.

    AbortGeneration -> AssignPlan        answer_s        StartWorkers -> WorkerBorn                   start_s
    AssignPlan -> WorkersReady           regroup_s       the first AssignPlan -> WorkersReady         first_s
    AssignPlan -> the last StateMoved    switch_s        StateMoved: bytes / seconds                  move_bytes_per_s
    WorkerLost.silent_s                  detect_s        commit -> commit, less the step's phases     gap_s
    commit -> commit, the rest           steps_s, by mesh and workers that live

Medians of hands, means of steps and gaps, which add up to a run; what did not happen in the run keeps its default.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from raymega.control.commands import AbortGeneration, AssignPlan, StartWorkers
from raymega.control.events import StateMoved, StepCommitted, WorkerBorn, WorkerLost, WorkersReady
from raymega.control.goodput import OF_PHASE
from raymega.control.loop import Turn
from raymega.control.prices import LEAST_BYTES
from raymega.control.states import Moving, Training
from raymega.plan.plan import WorkerId
from raymega.sim.step_clock import PlanSize, size_of
from raymega.sim.times import Times

LEAST_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one run took. `steps_s`: of each mesh and number of workers that it had; none: it committed no step."""

    times: Times
    steps_s: Mapping[PlanSize, float]

    @property
    def workers(self) -> int:
        """The most that it had."""
        return max((workers for _, workers in self.steps_s), default=0)

    @property
    def step_s(self) -> float | None:
        """Of the plan with most workers."""
        return next((step_s for (_, workers), step_s in self.steps_s.items() if workers == self.workers), None)


def calibrated(turns: Iterable[Turn], *, default: Times) -> Calibration:
    """Measure a run. Turns are those of all its controllers, in order."""
    seen = _Seen()
    for turn in turns:
        seen.take(turn)
    found = {name: max(LEAST_S, median(values)) for name, values in seen.seconds.items() if values}
    if seen.gaps_s:
        found["gap_s"] = max(LEAST_S, fmean(seen.gaps_s))
    return Calibration(
        times=replace(default, **found), steps_s={size: fmean(values) for size, values in seen.steps.items()}
    )


@dataclass(slots=True, kw_only=True)
class _Seen:
    """Seconds of every kind that occurred; steps by the size of their plan."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[PlanSize, list[float]] = field(default_factory=dict)
    gaps_s: list[float] = field(default_factory=list)
    started_t: dict[WorkerId, float] = field(default_factory=dict)
    born: set[WorkerId] = field(default_factory=set)
    abort_t: float | None = None
    assigned: tuple[float, AssignPlan] | None = None
    committed_t: float | None = None
    moved_s: float = 0.0
    trained: bool = False

    def take(self, turn: Turn) -> None:
        self._hear(turn)
        for command in turn.decision.commands:
            match command:
                case StartWorkers():
                    self.started_t |= {seat.worker: turn.t for seat in command.seats if self.trained}
                case AbortGeneration():
                    self.abort_t = turn.t
                case AssignPlan():
                    if self.abort_t is not None and command.keep_state:
                        self._note("answer_s", turn.t - self.abort_t)
                    self.abort_t, self.assigned, self.committed_t, self.moved_s = None, (turn.t, command), None, 0.0

    def _hear(self, turn: Turn) -> None:
        match turn.event:
            case WorkerLost(worker=worker, silent_s=silent_s) if silent_s > 0 and worker in self.born:
                self._note("detect_s", silent_s)
            case WorkerBorn(worker=worker, also=also):
                self.born |= {worker, *also}
                for fresh in (worker, *also):
                    if fresh in self.started_t:
                        self._note("start_s", turn.t - self.started_t.pop(fresh))
            case WorkersReady() if self.assigned is not None:
                self._ready(turn.t, *self.assigned)
            case StateMoved() as moved:
                self._moved(turn, moved)
            case StepCommitted() as step if isinstance(turn.before, Training):
                self._step(turn.t, step, turn.before)

    def _ready(self, t: float, assigned_t: float, command: AssignPlan) -> None:
        if command.keep_state:
            self._note("regroup_s", t - assigned_t)
        elif not self.trained:
            self._note("first_s", t - assigned_t)
        self.trained = True

    def _moved(self, turn: Turn, moved: StateMoved) -> None:
        move_s = moved.seconds.get("move", 0.0)
        if moved.bytes_received >= LEAST_BYTES and move_s > 0:
            self._note("move_bytes_per_s", moved.bytes_received / move_s)
            self.moved_s = max(self.moved_s, move_s)
        if isinstance(turn.before, Moving) and isinstance(turn.decision.state, Training) and self.assigned is not None:
            self._note("switch_s", turn.t - self.assigned[0] - self.moved_s)

    def _step(self, t: float, step: StepCommitted, before: Training) -> None:
        if before.repair is None and self.committed_t is not None:
            each_s = (t - self.committed_t) / step.count
            known_s = min(each_s, sum(step.seconds.get(phase, 0.0) for phase in OF_PHASE))
            self.steps.setdefault(size_of(before.plan), []).append(known_s)
            self.gaps_s.append(each_s - known_s)
        self.committed_t = t

    def _note(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)
