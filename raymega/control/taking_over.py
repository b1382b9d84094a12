"""A controller takes a run over from one that is gone: what the replayed state becomes.

    WaitingForNodes                   stays: nobody is in a generation
    Starting, Restoring, Training     the generation is broken as by a loss: every worker of the plan is asked to leave
    Stopping                          the same; the stop follows the repair
    Moving                            the same; the transition is rolled back
    Settling                          everyone is asked again: who has answered is known
    Saving                            stays: no step is left to do, and what workers have saved they tell again
    Finished, Failed                  are not taken over

The state is that of the last decision, of which any command may have been sent or not. That everyone leaves makes this
one case: who never had its place in the newest generation says so, and a decision, once made, is in some answer. Then
`control.repairing` finishes the step, so that no finished work is done again. What workers tell twice counts once.

Which parts of a checkpoint are saved is forgotten and told anew, since the files' names went with the old controller.
"""

from dataclasses import replace

from raymega.control.broken import Sign
from raymega.control.commands import AbortGeneration, Command, Evaluate, WithdrawCheckpoints
from raymega.control.decision import Brain, Decision
from raymega.control.events import ControllerTakenOver
from raymega.control.policy import settle_s
from raymega.control.recovery import break_generation, settle
from raymega.control.states import (
    Moving,
    Restoring,
    SavesUnderway,
    Saving,
    Settling,
    Starting,
    Stopping,
    Training,
    WaitingForNodes,
    with_story,
)

InGeneration = Starting | Restoring | Training | Moving | Stopping
Taken = WaitingForNodes | InGeneration | Saving | Settling


def taken_over(brain: Brain, state: Taken, event: ControllerTakenOver, now: float) -> Decision:
    """Go on from `state` as the controller of a newer epoch."""
    told = f"controller {event.epoch} takes over, {event.silent_s:.1f} s after the last decision of the one before"
    state = with_story(state, replace(state.story, epoch=event.epoch))
    match state:
        case WaitingForNodes():
            return Decision(state=state, reason=told)
        case Settling():
            return _ask_again(brain, state, told, now)
        case Saving():
            training = replace(state.training, saves=_forgotten(state.training.saves))
            after = replace(state, training=training, since=now)
            return Decision(state=after, commands=_evaluate_again(training), reason=f"{told}; the last save goes on")
        case Starting() | Restoring() | Training() | Stopping() | Moving():
            return _break(brain, state, Sign(reason=told, silent_s=event.silent_s), now)


def _break(
    brain: Brain, state: Starting | Restoring | Training | Stopping | Moving, sign: Sign, now: float
) -> Decision:
    """Ask every worker of the plan to leave its generation. Nobody has answered yet, so this is Settling."""
    if isinstance(state, Training):
        state = replace(state, saves=_forgotten(state.saves))
    if isinstance(state, Stopping):
        state = replace(state, training=replace(state.training, saves=_forgotten(state.training.saves)))
    broken = break_generation(brain, state, sign, now)
    assert isinstance(broken.state, Settling), "there are workers who have not answered"
    return replace(broken, state=replace(broken.state, taken_over=True))


def _ask_again(brain: Brain, state: Settling, told: str, now: float) -> Decision:
    asked = replace(state, saves=_forgotten(state.saves), until=now + settle_s(brain.rules, ()), taken_over=True)
    abort: tuple[Command, ...] = (AbortGeneration(generation=state.story.generation, reason=told),)
    if state.goes_back:
        abort = (WithdrawCheckpoints(after_step=state.story.safe_step), *abort)
    settled = settle(brain, asked, now)
    reason = f"{told}; {settled.reason or 'those who have not answered are asked again'}"
    return replace(settled, commands=(*abort, *settled.commands), reason=reason)


def _forgotten(saves: tuple[SavesUnderway, ...]) -> tuple[SavesUnderway, ...]:
    """The saves, of whose parts nothing is known."""
    return tuple(replace(save, saved=frozenset(), publishing=False) for save in saves)


def _evaluate_again(training: Training) -> tuple[Command, ...]:
    """The validation that the last step's record waits for."""
    record = training.story.unwritten
    return () if record is None else (Evaluate(generation=training.story.generation, after_step=record.step),)
