"""What the hands of a real run took, from its journal: so that the next run can be simulated.

    AbortGeneration -> AssignPlan        answer_s        StartWorkers -> WorkerBorn, WorkersReady     start_s
    AssignPlan -> WorkersReady           regroup_s       StateMoved: bytes / seconds                  move_bytes_per_s
    WorkerLost.silent_s                  detect_s        commit -> commit, less the step              gap_s

Medians; what did not happen in the run keeps its default.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median

from raymega.control.commands import AbortGeneration, AssignPlan, StartWorkers
from raymega.control.events import StateMoved, StepCommitted, WorkerBorn, WorkerLost, WorkersReady
from raymega.control.loop import Turn
from raymega.control.prices import LEAST_BYTES
from raymega.control.states import Training
from raymega.plan.plan import WorkerId
from raymega.sim.times import Times

LEAST_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one run took. `step_s`: of the plan with most workers that it had; None: it committed no step."""

    times: Times
    step_s: float | None
    workers: int


def calibrated(turns: Iterable[Turn], *, default: Times) -> Calibration:
    """Measure a run. Turns are those of all its controllers, in order."""
    seen = _Seen()
    for turn in turns:
        seen.take(turn)
    found = {name: max(LEAST_S, median(values)) for name, values in seen.seconds.items() if values}
    most = max(seen.steps, default=0)
    return Calibration(
        times=replace(default, **found), step_s=median(seen.steps[most]) if most else None, workers=most
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Seen:
    """Seconds of every kind that occurred; steps by the number of workers of their plan."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[int, list[float]] = field(default_factory=dict)
    started_t: dict[WorkerId, float] = field(default_factory=dict)
    abort_t: float | None = None
    assigned: tuple[float, AssignPlan] | None = None
    committed_t: float | None = None

    def take(self, turn: Turn) -> None:
        self._hear(turn)
        for command in turn.decision.commands:
            match command:
                case StartWorkers():
                    self.started_t |= {seat.worker: turn.t for seat in command.seats}
                case AbortGeneration():
                    self.abort_t = turn.t
                case AssignPlan():
                    if self.abort_t is not None and command.keep_state:
                        self._note("answer_s", turn.t - self.abort_t)
                    self.abort_t, self.assigned, self.committed_t = None, (turn.t, command), None

    def _hear(self, turn: Turn) -> None:
        match turn.event:
            case WorkerLost(silent_s=silent_s) if silent_s > 0:
                self._note("detect_s", silent_s)
            case WorkerBorn(worker=worker) if worker in self.started_t:
                self._note("start_s", turn.t - self.started_t.pop(worker))
            case WorkersReady() if self.assigned is not None:
                self._ready(turn.t, *self.assigned)
            case StateMoved() as moved if moved.bytes_received >= LEAST_BYTES and moved.seconds.get("move", 0.0) > 0:
                self._note("move_bytes_per_s", moved.bytes_received / moved.seconds["move"])
            case StepCommitted() as step if isinstance(turn.before, Training):
                self._step(turn.t, step, turn.before)

    def _ready(self, t: float, assigned_t: float, command: AssignPlan) -> None:
        if command.keep_state:
            self._note("regroup_s", t - assigned_t)
        elif command.checkpoint is None and not self.seconds.get("start_s"):
            self._note("start_s", t - assigned_t)

    def _step(self, t: float, step: StepCommitted, before: Training) -> None:
        if before.repair is None and self.committed_t is not None:
            self.steps.setdefault(len(before.plan.living), []).append(step.step_s)
            self._note("gap_s", max(0.0, (t - self.committed_t) / step.count - step.step_s))
        self.committed_t = t

    def _note(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)
