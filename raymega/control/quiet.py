"""How far does a run go on by itself? Until there is anything to decide but leave, as long as nothing else happens.

    commit 41, 42 .. 97     told of at once (`StepCommitted.count`): no save, no other plan on its way, no question due
    tick                    left out where it would find nothing to do

Whoever decides one by one comes to the same: that is what `Quiet` promises, and what hands may rely on.
"""

from dataclasses import replace

from raymega.control.commands import Command, Grant, Quiet
from raymega.control.events import StepCommitted
from raymega.control.policy import RECENT_STEPS, Rules, extended, steps_ahead
from raymega.control.states import State, Training


def facts_of(training: Training) -> tuple[object, ...]:
    """All that the next plan hangs on, but for the time; mostly the same objects as before, which compare at once."""
    story, outlook = training.story, training.story.outlook
    held = outlook.hold_until, outlook.rollbacks
    return (
        training.plan, training.seats, story.nodes, outlook.draining, outlook.unborn, story.avoided, outlook.wish, held,
        outlook.most_samples,
    )  # fmt: skip


def quiet_after(rules: Rules, training: Training) -> Quiet | None:
    """See above; None where the very next step may be more than a step."""
    story, busy = training.story, _is_busy(training)
    if not rules.counts_steps or busy or not training.recent_step_s or story.course.hold is not None:
        return None
    asked = [step for step in story.course.saves if step > story.committed]
    ahead = max(steps_ahead(training.recent_step_s), steps_ahead(training.recent_step_s[-1:]))
    last = min([rules.next_kept(story.committed), *asked]) - 2 * ahead - 2  # leave for it is given long before
    if story.committed < story.furthest:
        last = min(last, story.furthest)
    return Quiet(step=last, t=tick_due_t(training)) if last > story.committed else None


def tick_due_t(state: State) -> float:
    """A tick before this time decides nothing; in most states any tick may."""
    if not isinstance(state, Training) or _is_busy(state) or state.weighed is None:
        return float("-inf")
    return state.weighed.again_t if state.weighed.facts == facts_of(state) else float("-inf")


def is_due_at_once(state: State) -> bool:
    """Was leave given before it was weighed whether another plan is due? Then that is found out next, by a tick."""
    return isinstance(state, Training) and state.weighed is None


def leave_in_between(rules: Rules, training: Training, event: StepCommitted) -> tuple[Training, tuple[Command, ...]]:
    """The leave that is given at each of the steps of `event` but the last, all in one."""
    committed, granted, recent = training.story.committed, training.granted, training.recent_step_s
    ahead = steps_ahead((event.step_s,))
    for step in range(committed + 1, event.step):
        if step <= committed + RECENT_STEPS:
            recent = (*recent, event.step_s)[-RECENT_STEPS:]
            ahead = steps_ahead(recent)
        granted = extended(committed=step, granted=granted, ahead=ahead, steps=rules.steps)
    if granted == training.granted:
        return training, ()
    return replace(training, granted=granted), (Grant(generation=training.story.generation, until=granted),)


def _is_busy(training: Training) -> bool:
    """Is anything on its way beside the steps?"""
    waits = training.story.unwritten is not None or training.story.validated is not None
    return waits or bool(training.saves) or training.change is not None or training.repair is not None
