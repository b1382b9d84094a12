"""Where the worker-seconds went (law 8): every second of every worker is in one category, and they add up to all.

    start        the first workers start, build groups, load
    useful       compute and apply of committed steps
    bubble       waiting for a neighbouring stage        exchange   summing gradients and facts
    data         waiting for a batch                     checkpoint a step held up by its snapshot, the last save
    detect       a worker was gone and nobody knew       repair     from then until training goes on
    move         state on its way between workers        replay     steps done again, and what a broken step lost
    idle         the rest: between steps, validation, back-off

    goodput = (useful + bubble + exchange + data) / all; the useful share is given apart

Where there is no node at all there are no worker-seconds either: such time is told beside them (`without_nodes_s`).
Inside a step the seconds are those of the worker that reports it, taken for all workers of the plan: they do the
same step in the same time. What was done of a step before it broke is replay, until a repair commits it: then only the
share of it that was run again stays so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from raymega.control.broken import RepairUnderway
from raymega.control.events import ControllerTakenOver, Event, GenerationLeft, StepCommitted, WorkerLost
from raymega.control.states import (
    Moving,
    Restoring,
    Saving,
    Settling,
    Starting,
    State,
    Stopping,
    Training,
    WaitingForNodes,
    plan_of,
)
from raymega.pipeline.actions import WHOLE
from raymega.plan.plan import Plan

CATEGORIES = (
    "start", "useful", "bubble", "exchange", "data", "checkpoint", "detect", "repair", "move", "replay", "idle",
)  # fmt: skip
GOOD = ("useful", "bubble", "exchange", "data")
OF_PHASE = {
    "compute": "useful", "apply": "useful", "wait_peer": "bubble", "reduce": "exchange", "decide": "exchange",
    "gather": "exchange", "wait_batch": "data", "snapshot": "checkpoint", "copies": "checkpoint",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Worker-seconds by category up to `t`; a value that grows with each turn of the loop (`after`).

    Args:
        broken_s: worker-seconds of the step in hand before it broke; they stand under replay.
        without_nodes_s: seconds in which the run waited and there was no node.
        ray_is_up: from the first; else, before the first node, Ray comes up, and the first worker waits for it.
    """

    t: float
    ray_is_up: bool = False
    seconds: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0.0))
    last_bubble: float = 0.0
    broken_s: float = 0.0
    without_nodes_s: float = 0.0

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """Goodput: the share of worker-seconds that entered a committed step."""
        return self.share_of(*GOOD)

    def share_of(self, *categories: str) -> float:
        total_s = self.total_s
        return sum(self.seconds[name] for name in categories) / total_s if total_s > 0 else 0.0

    def after(self, before: State, event: Event, t: float) -> "Goodput":
        """Add the time since the last turn that closed a stretch; `before` is the state it was spent in."""
        passed_s, plan = max(0.0, t - self.t), plan_of(before)
        if isinstance(before, WaitingForNodes):
            return self._waited(before, passed_s, t)
        workers = len(plan.living) if plan is not None else 1
        if not isinstance(before, Training | Stopping):
            return self._add({_category(before): passed_s}, workers, t)
        training = before if isinstance(before, Training) else before.training
        if isinstance(event, StepCommitted):
            return self._committed(training, event, passed_s, t)
        if isinstance(event, WorkerLost) and not _has_part(event, training.plan):
            return self  # the step goes on without it
        if not isinstance(event, WorkerLost | GenerationLeft | ControllerTakenOver):
            return self
        silent_s = 0.0 if isinstance(event, GenerationLeft) else min(passed_s, event.silent_s)
        broken_s = self.broken_s + workers * (passed_s - silent_s)
        return replace(
            self._add({"detect": silent_s, "replay": passed_s - silent_s}, workers, t), broken_s=broken_s
        )  # fmt: skip

    def then(self, later: "Goodput") -> "Goodput":
        """What this launch and a later one of the run add up to."""
        return replace(
            later,
            seconds={name: self.seconds[name] + later.seconds[name] for name in CATEGORIES},
            last_bubble=later.last_bubble or self.last_bubble,
            without_nodes_s=self.without_nodes_s + later.without_nodes_s,
        )

    def _waited(self, state: WaitingForNodes, passed_s: float, t: float) -> "Goodput":
        """Seconds of the workers that are left; at the start, while Ray comes up, of the first to come."""
        if not state.story.nodes and (self.ray_is_up or state.story.next_worker):
            return replace(self, t=t, without_nodes_s=self.without_nodes_s + passed_s)
        return self._add({_category(state): passed_s}, max(1, len(state.seats)), t)

    def _committed(self, training: Training, event: StepCommitted, passed_s: float, t: float) -> "Goodput":
        again = event.step <= training.story.furthest
        spent = {"replay": passed_s} if again else _of_step(event, passed_s)
        bubble = event.seconds.get("wait_peer", 0.0) / event.step_s if event.step_s > 0 else 0.0
        added = self._add(spent, len(training.plan.living), t)
        if training.repair is not None:
            added = added._kept(event, self.broken_s * _kept_share(training.repair, training.plan))
        return replace(added, last_bubble=bubble, broken_s=0.0)

    def _kept(self, event: StepCommitted, kept_s: float) -> "Goodput":
        """Worker-seconds of the broken step that its repair has kept, spent as the rest of it was."""
        parts = _of_step(event, event.step_s)
        known_s = sum(parts.values()) or 1.0
        spent = {name: seconds * kept_s / known_s for name, seconds in parts.items()}
        return self._add({**spent, "replay": -kept_s}, 1, self.t)

    def _add(self, spent: Mapping[str, float], workers: int, t: float) -> "Goodput":
        seconds = {name: self.seconds[name] + workers * spent.get(name, 0.0) for name in CATEGORIES}
        return replace(self, t=t, seconds=seconds)


def _has_part(event: WorkerLost, plan: Plan) -> bool:
    """Whether any of the lost had a part in the step."""
    return any(said.worker in plan.living for said in (event, *event.also))


def _kept_share(mended: RepairUnderway, plan: Plan) -> float:
    """Of what had been done of a step when it broke, what was not run again.

    Nobody knows how far the lost were: as far as the others, so that as much of it was theirs as of all the step.
    """
    actions = len(plan.layers) * plan.num_microbatches * len(WHOLE)
    return 1 - mended.recomputed / actions if mended.missing < actions else 0.0


def _of_step(event: StepCommitted, passed_s: float) -> dict[str, float]:
    """The stretch up to a commit by category; what the steps do not explain is idle."""
    spent = dict.fromkeys(CATEGORIES, 0.0)
    for phase, category in OF_PHASE.items():
        spent[category] += event.count * event.seconds.get(phase, 0.0)
    known_s = sum(spent.values())
    if known_s > passed_s:
        return {name: seconds * passed_s / known_s for name, seconds in spent.items()}
    spent["idle"] += passed_s - known_s
    return spent


def _category(state: State) -> str:
    match state:
        case WaitingForNodes() if state.story.recoveries == 0:
            return "start"
        case Starting():
            return "start"
        case Moving():
            return "move"
        case Settling() | Restoring():
            return "repair"
        case Saving():
            return "checkpoint"
        case _:
            return "idle"
