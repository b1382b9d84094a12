"""How far does a run go on by itself? Until there is anything to decide but leave, as long as nothing else happens.

    commit 41, 42 .. 97     told of at once (`StepCommitted.count`): none is saved, no other plan on its way,
                        no question due
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
    story, recent = training.story, training.recent_step_s
    if not rules.counts_steps or _is_changing(training) or not recent or story.course.hold is not None:
        return None
    ahead = max(map(steps_ahead, (recent, *((step_s,) for step_s in recent))))
    kept, kept_later = (_next_kept(rules, training, after=step) for step in (story.committed, training.granted))
    # Leave for a step that is kept is given at one that is told by itself: long before, or with the next leave.
    last = min(kept - 1, max(kept_later - 2 * ahead - 2, training.granted - ahead // 2 - 1))
    if story.committed < story.furthest:
        last = min(last, story.furthest)
    return Quiet(step=last, t=_question_due_t(training)) if last > story.committed else None


def _next_kept(rules: Rules, training: Training, *, after: int) -> int:
    asked = (step for step in training.story.course.saves if step > after)
    return min([rules.next_kept(after), *asked])


def tick_due_t(state: State) -> float:
    """A tick before this time decides nothing; in most states any tick may."""
    if not isinstance(state, Training) or state.saves or _is_changing(state):
        return float("-inf")
    return _question_due_t(state)


def _question_due_t(training: Training) -> float:
    """When it is asked next whether another plan is due."""
    weighed = training.weighed
    return weighed.again_t if weighed is not None and weighed.facts == facts_of(training) else float("-inf")


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


def _is_changing(training: Training) -> bool:
    """Is anything on its way beside the steps and their saves?"""
    waits = training.story.unwritten is not None or training.story.validated is not None
    return waits or training.change is not None or training.repair is not None
