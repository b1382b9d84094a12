"""What people ask of the course of a live run: to wait, to go on, another rate, a checkpoint, faults. Each is answered.

    steps   ... 7   8   9 | 10  11 ...       leave is given up to 9: nobody has begun step 10, so 9 is the first
                committed |                  boundary that all workers share, and what is asked for holds from there
                          granted

Where a run is not training the next step is whole again in everybody's hands, and the boundary is after that.
"""

import math
from dataclasses import replace

from raymega.control.asking import Live, accepted, refused
from raymega.control.commands import Disturb
from raymega.control.course import Course
from raymega.control.decision import Brain, Decision
from raymega.control.events import CheckpointAsked, DisturbAsked, PauseAsked, ResumeAsked, SetAsked
from raymega.control.preparing import proceed
from raymega.control.states import Training, with_story


def pause_asked(brain: Brain, state: Live, event: PauseAsked, now: float) -> Decision:
    """Give no leave beyond what there is; after a change of plan that is due already, one step of the next plan."""
    hold, course = _boundary(state), state.story.course
    if event.after_step is not None and event.after_step < hold:
        return refused(state, event, f"there is leave up to step {hold} already. Pause after that one, or a later one")
    hold = hold if event.after_step is None else event.after_step
    if hold >= brain.rules.steps:
        return refused(state, event, f"step {brain.rules.steps} is the last: there is none to wait for after it")
    hold = hold if course.hold is None else min(hold, course.hold)
    after = _with_course(state, replace(course, hold=hold))
    return accepted(Decision(state=after), event, f"all workers pause after step {hold}")


def resume_asked(brain: Brain, state: Live, event: ResumeAsked, now: float) -> Decision:
    """Go on, for so many steps where that was asked for."""
    course, story = state.story.course, state.story
    if event.steps is None and course.hold is None:
        return accepted(Decision(state=state), event, "the run is not paused")
    hold = None if event.steps is None else max(_boundary(state), story.committed + event.steps)
    going = "training goes on" if hold is None else f"training goes on, and pauses after step {hold}"
    return _on(brain, state, replace(course, hold=hold), event, f"{going} (step {story.committed} is committed)", now)


def set_asked(brain: Brain, state: Live, event: SetAsked, now: float) -> Decision:
    """Another rate from the boundary on; the schedule scales it as it did the one before."""
    if not (math.isfinite(event.lr) and event.lr > 0):
        return refused(state, event, f"lr {event.lr} is no rate to train with; a number above 0 is wanted")
    boundary, course = _boundary(state), state.story.course
    if boundary >= brain.rules.steps:
        return refused(state, event, f"step {brain.rules.steps} is the last, and there is leave for it already")
    if course.rates and course.rates[-1][1] == event.lr:
        return accepted(Decision(state=state), event, f"lr is {event.lr:g} after step {course.rates[-1][0]} already")
    after = _with_course(state, course.with_rate(event.lr, after_step=boundary))
    return accepted(Decision(state=after), event, f"lr is {event.lr:g} after step {boundary}")


def checkpoint_asked(brain: Brain, state: Live, event: CheckpointAsked, now: float) -> Decision:
    """Save the first step that nobody has begun."""
    step, story = _boundary(state) + 1, state.story
    if step >= brain.rules.steps:
        return accepted(Decision(state=state), event, f"step {brain.rules.steps} is the last, which is saved anyway")
    held = story.course.hold is not None and story.course.hold < step
    waits = "; the run is paused: it is saved once it goes on" if held else ""
    course = story.course.with_save(step, safe_step=story.safe_step)
    return _on(brain, state, course, event, f"step {step} is saved{waits}", now)


def disturb_asked(brain: Brain, state: Live, event: DisturbAsked, now: float) -> Decision:
    """Pass the orders on: each has its own point, which is nobody else's business."""
    decision = Decision(state=state, commands=(Disturb(orders=event.orders, without=event.without),))
    orders = f"at its point: {'; '.join(event.orders)}" if event.orders else ""
    return accepted(decision, event, "; ".join(filter(None, (orders, _without(event)))))


def _without(event: DisturbAsked) -> str:
    """What becomes of the devices."""
    match event.without:
        case None:
            return ""
        case ():
            return "on purpose the run has all its devices back"
        case withheld:
            which = " and ".join(f"{devices} of node {node}" for node, devices in withheld)
            return f"on purpose the run does without devices: {which}"


def _boundary(state: Live) -> int:
    """The step beyond which nothing is begun; with a first leave for whoever holds state of a plan that is due."""
    if not isinstance(state, Training):
        return state.story.committed + 1
    chosen = state.change.boundary if state.change is not None else None
    return state.granted if chosen is None else max(state.granted, chosen + 1)


def _with_course(state: Live, course: Course) -> Live:
    return with_story(state, replace(state.story, course=course))


def _on(
    brain: Brain, state: Live, course: Course, event: ResumeAsked | CheckpointAsked, reason: str, now: float
) -> Decision:
    after = _with_course(state, course)
    return accepted(proceed(brain, after, now) if isinstance(after, Training) else Decision(state=after), event, reason)
