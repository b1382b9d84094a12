"""How a run ends: all steps committed and saved, a stop at a shared boundary, or a failure.

    StopAsked in Training    run to granted + 1, save there, finish     (every worker still has to pass that boundary)
    in a repair or a move    the same, once that is over: one more step, saved
    StopAsked elsewhere      finish at once, from the newest checkpoint
    a second Ctrl-C          finish at once
    the grace is used up     finish at once

Exit code 0 only if the steps asked for were committed (law 10); a user's own stop asks for no more steps.
"""

from dataclasses import replace

from raymega.config.fault import counted
from raymega.control.commands import AbortGeneration, Command, Evaluate, Finish, Grant, StopWorkers
from raymega.control.decision import Brain, Decision
from raymega.control.events import StopAsked
from raymega.control.policy import RESUMABLE, stop_exit_code
from raymega.control.states import (
    Failed,
    Finished,
    Moving,
    Over,
    Restoring,
    SavesUnderway,
    Saving,
    Settling,
    State,
    Stop,
    Stopping,
    Story,
    Training,
    plan_of,
    seats_of,
)
from raymega.control.validating import unwritten

SAYS = {
    "user": "the user asked to stop",
    "interrupt": "Ctrl-C",
    "terminate": "SIGTERM",
    "hangup": "its terminal is gone",
    "client_gone": "the client is gone",
    "deadline": "the time is over",
}


def end(state: State, *, exit_code: int, reason: str, resumable: bool = True) -> Decision:
    """End the run now, as asked for; nobody is waited for."""
    over = Finished(story=state.story, exit_code=exit_code, reason=reason)
    return Decision(state=over, commands=_farewell(state, over, resumable=resumable), reason=reason)


def give_up(state: State, *, exit_code: int, reason: str, details: str = "") -> Decision:
    """End the run now, not as asked for; the reason says where it can go on."""
    told = f"{reason}; {where_to_resume(state.story)}"
    over = Failed(story=state.story, exit_code=exit_code, reason=told, details=details)
    return Decision(state=over, commands=_farewell(state, over, resumable=True), reason=told)


def all_done(steps: int) -> str:
    """How a run says that it did what it was asked for."""
    done = "its only step is" if steps == 1 else f"all {counted(steps, noun='step')} are"
    return f"{done} committed and saved"


def finish(brain: Brain, state: Saving) -> Decision:
    """All steps that were left to do are committed and saved."""
    story, steps = state.story, brain.rules.steps
    if story.committed == steps:
        return end(state, exit_code=0, reason=all_done(steps), resumable=False)
    assert state.stop is not None, "a run without a stop saves last at its last step"
    code = stop_exit_code(state.stop.by, saved=True)
    return end(state, exit_code=code, reason=f"{state.stop.reason}: stopped and saved at step {story.committed}")


def end_saved(brain: Brain, state: Settling, why: str) -> Decision:
    """No step is left, and the last save is complete, whatever has broken since."""
    story, steps = state.story, brain.rules.steps
    if story.committed >= steps:
        return end(state, exit_code=0, reason=f"{all_done(steps)}; {why}", resumable=False)
    assert state.stop is not None, "a run without a stop saves last at its last step"
    code = stop_exit_code(state.stop.by, saved=True)
    return end(state, exit_code=code, reason=f"{state.stop.reason}: stopped and saved at step {story.committed}; {why}")


def save_last(training: Training, stop: Stop | None, now: float) -> Decision:
    """Nobody does a step any more: save what all have."""
    story = training.story
    step = story.committed
    underway = SavesUnderway(step=step, since=now, tokens_total=story.tokens_total)
    grant = Grant(generation=story.generation, until=step, save_at=(step,))
    saving = Saving(training=replace(training, saves=(underway,)), stop=stop, since=now)
    reason = f"step {step} is saved by all who are left, {counted(len(training.plan.living), noun='worker')}"
    return Decision(state=saving, commands=(grant,), reason=reason)


def stop_at_boundary(brain: Brain, state: Training, event: StopAsked, now: float) -> Decision:
    """Let everyone run to the first boundary that nobody can have passed yet, and save there."""
    return stop_after(brain, replace(state, change=None), _stop(event, now))


def stop_after(brain: Brain, training: Training, stop: Stop) -> Decision:
    """End with the step after those that there is leave for."""
    until, generation = min(brain.rules.steps, training.granted + 1), training.story.generation
    commands: list[Command] = []
    if until > training.granted:
        if brain.rules.is_evaluated(until):
            commands.append(Evaluate(generation=generation, after_step=until))
        commands.append(Grant(generation=generation, until=until, save_at=(until,)))
        training = replace(training, granted=until, saves=(*training.saves, SavesUnderway(step=until)))
    reason = f"{stop.reason}: all workers stop after step {until} and save"
    return Decision(state=Stopping(training=training, stop=stop), commands=tuple(commands), reason=reason)


def stop_soon(brain: Brain, state: Settling | Restoring | Moving, event: StopAsked, now: float) -> Decision:
    """A step is repaired, or state moves: stop with the step after it, where there is state to go on with."""
    asked = _stop(event, now)
    again = state.stop is not None and state.stop.by == "interrupt" and event.by == "interrupt"
    keeps = not isinstance(state, Settling) or state.held  # what is loaded is of the newest checkpoint, so it is saved
    saved = state.story.safe_step == state.story.committed
    if again or not keeps or saved or state.story.committed >= brain.rules.steps or is_overdue(asked, now):
        return stop_now(brain, state, event, now)
    stop = asked if state.stop is None else replace(state.stop, by_t=_earlier(state.stop.by_t, asked.by_t))
    return Decision(state=replace(state, stop=stop), reason=f"{stop.reason}: the next step is the last, and saved")


def stop_now(brain: Brain, state: State, event: StopAsked, now: float) -> Decision:
    """There is no boundary to run to: end with what the newest checkpoint holds."""
    story = state.story
    saved = story.safe_step == story.committed
    if story.committed >= brain.rules.steps and saved:
        return end(state, exit_code=0, reason="all steps were committed and saved already", resumable=False)
    kept = f"nothing is lost at step {story.committed}" if saved else f"step {story.safe_step} is the newest saved"
    return end(state, exit_code=stop_exit_code(event.by, saved=saved), reason=f"{SAYS[event.by]}: stopped; {kept}")


def stop_again(brain: Brain, state: Stopping | Saving, event: StopAsked, now: float) -> Decision:
    """A stop is underway. A second Ctrl-C ends at once; anything else may only bring the deadline nearer."""
    if state.stop is None:
        asked = replace(state, stop=_stop(event, now))
        return Decision(state=asked, reason=f"{SAYS[event.by]}: no step is left to do, the last save is underway")
    if event.by == "interrupt" and state.stop.by == "interrupt":
        return cut_short(state, "a second Ctrl-C")
    by_t = _earlier(state.stop.by_t, _stop(event, now).by_t)
    return Decision(state=replace(state, stop=replace(state.stop, by_t=by_t)))


def cut_short(state: Stopping | Saving | Settling | Restoring | Moving, cause: str) -> Decision:
    """End a stop before its save is complete."""
    stop = state.stop
    code = stop_exit_code(stop.by, saved=False) if stop is not None else RESUMABLE
    why = f"{stop.reason}: " if stop is not None else ""
    reason = f"{why}ended without a complete save ({cause}); step {state.story.safe_step} is the newest saved"
    return end(state, exit_code=code, reason=reason)


def is_saved(state: Saving) -> bool:
    """Is the last step's checkpoint published? Then at most a validation loss is missing."""
    return state.story.safe_step == state.story.committed


def is_overdue(stop: Stop | None, now: float) -> bool:
    """Is the grace of `stop` used up?"""
    return stop is not None and stop.by_t is not None and now >= stop.by_t


def where_to_resume(story: Story) -> str:
    """Where a run that ended early can go on, as half a sentence."""
    if story.checkpoint is None:
        return "no checkpoint was published, so it can only start again"
    return f"it can be resumed from the checkpoint of step {story.checkpoint.step}"


def _earlier(*times: float | None) -> float | None:
    return min((t for t in times if t is not None), default=None)


def _stop(event: StopAsked, now: float) -> Stop:
    by_t = None if event.grace_s is None else now + event.grace_s
    return Stop(by=event.by, reason=SAYS[event.by], by_t=by_t)


def _farewell(state: State, over: Over, *, resumable: bool) -> tuple[Command, ...]:
    story = state.story
    commands = list(unwritten(story))
    if plan_of(state) is not None:
        commands.append(AbortGeneration(generation=story.generation, reason=over.reason))
    if seats := seats_of(state):
        commands.append(StopWorkers(workers=tuple(seat.worker for seat in seats)))
    resume_step = story.safe_step if resumable else None
    commands.append(
        Finish(exit_code=over.exit_code, reason=over.reason, steps_lost=story.steps_lost, resume_step=resume_step)
    )
    return tuple(commands)
