"""What a simulated run did, gathered turn by turn: a watcher of the loop."""

from dataclasses import dataclass, field

from raymega.control.commands import Rewind, WriteRepair, WriteTransition
from raymega.control.events import StepCommitted
from raymega.control.goodput import Goodput
from raymega.control.loop import Turn
from raymega.control.states import Moving as MovingState
from raymega.control.states import Restoring, Settling, Training
from raymega.plan.plan import Plan

COLUMNS = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What ran from `t_s` on; `devices`: that had a part."""

    t_s: float
    workers: int
    plan: Plan
    step_s: float


@dataclass(slots=True, kw_only=True)
class Recorder:
    """See above.

    Args:
        end_s: of the run.
        started_s: when the first step began.
        work: steps that were committed in each column of the time.
        pauses_s: seconds of each column without a step on its way: (regrouping, moving).
    """

    end_s: float
    goodput: Goodput = field(default_factory=lambda: Goodput(t=0.0, ray_is_up=True))
    steps: int = 0
    tokens: int = 0
    repairs: int = 0
    transitions: int = 0
    rewinds: int = 0
    started_s: float | None = None
    stretches: list[Stretch] = field(default_factory=list)
    work: list[float] = field(default_factory=lambda: [0.0] * COLUMNS)
    regroup_s: list[float] = field(default_factory=lambda: [0.0] * COLUMNS)
    move_s: list[float] = field(default_factory=lambda: [0.0] * COLUMNS)
    _last_t: float = 0.0

    def saw(self, turn: Turn) -> None:
        self.goodput = self.goodput.after(turn.before, turn.event, turn.t)
        story = turn.decision.state.story
        self.steps, self.tokens = story.committed, story.tokens_total
        if isinstance(turn.event, StepCommitted) and isinstance(turn.before, Training):
            self._committed(turn, turn.before.plan, turn.event)
        if isinstance(turn.before, Settling | Restoring):
            self._add(self.regroup_s, self._last_t, turn.t, turn.t - self._last_t)
        if isinstance(turn.before, MovingState):
            self._add(self.move_s, self._last_t, turn.t, turn.t - self._last_t)
        self._last_t = turn.t
        for command in turn.decision.commands:
            match command:
                case WriteRepair():
                    self.repairs += 1
                case WriteTransition():
                    self.transitions += command.certified
                case Rewind():
                    self.rewinds += 1

    def _committed(self, turn: Turn, plan: Plan, event: StepCommitted) -> None:
        step_s = event.step_s
        begun_t = max(0.0, turn.t - event.count * step_s)
        self.started_s = begun_t if self.started_s is None else self.started_s
        self._add(self.work, begun_t, turn.t, event.count)
        if not self.stretches or self.stretches[-1].plan is not plan:
            self.stretches.append(Stretch(t_s=begun_t, workers=len(plan.living), plan=plan, step_s=step_s))

    def _add(self, columns: list[float], begin_t: float, end_t: float, amount: float) -> None:
        """Spread `amount` evenly over the columns of a stretch."""
        width = self.end_s / COLUMNS
        first, last = int(begin_t / width), min(COLUMNS - 1, int(end_t / width))
        for column in range(first, last + 1):
            inside = min(end_t, (column + 1) * width) - max(begin_t, column * width)
            columns[column] += amount * (inside / (end_t - begin_t) if end_t > begin_t else 1.0)
