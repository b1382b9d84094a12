"""`rewind`: people have a live run go back to a checkpoint that it keeps, and train on from there.

    steps         .. 100 101 .. 119 120 121 .. 134            asked: back to 100
    checkpoints       #              #                        that of 120 is withdrawn: nobody goes on from it any more
                      +--> 101 .. 119 120 ..                  metrics end at 100, and are written again

Everyone is told to leave its step, as after a loss, and what follows is the last rung of `control.recovery`: survivors
keep their process and load. It is no recovery, and no step counts as lost.

The checkpoint has to stay where it is until it is loaded: nothing is published from here on, so nothing goes because it
is old; and where something is being published, or was since it was looked for, it has to be asked for again, as where
nobody trains at the moment; who asks for people does so.
"""

from dataclasses import replace

from raymega.config.fault import are, counted
from raymega.control.asking import Live, accepted, refused
from raymega.control.broken import Sign
from raymega.control.commands import WithdrawCheckpoints
from raymega.control.decision import Brain, Decision
from raymega.control.events import RewindAsked
from raymega.control.recovery import break_generation
from raymega.control.states import Settling, Story, Training


def rewind_asked(brain: Brain, state: Live, event: RewindAsked, now: float) -> Decision:
    """Have everyone leave its step, for an older one; a run that is held is held there."""
    if not isinstance(state, Training):
        return refused(state, event, "nobody trains at this moment, so there is no step to leave", soon=True)
    if event.to.step > state.story.committed:
        ahead = f"step {event.to.step} is not committed yet, the run is at {state.story.committed}"
        return refused(state, event, ahead)
    if any(save.publishing for save in state.saves) or state.story.safe_step > event.newest:
        return refused(state, event, "a checkpoint is just being published, and with it the oldest may go", soon=True)
    step, again = event.to.step, state.story.committed - event.to.step
    void = f"{counted(again, noun='step')} {are(again)} void, later checkpoints are withdrawn"
    told = f"back to the checkpoint of step {step}, as asked: {void}"
    broken = break_generation(
        brain, replace(state, story=_back(state, event), saves=(), change=None), Sign(reason=told), now
    )
    assert isinstance(broken.state, Settling), "there are workers who have not answered"
    settling = replace(broken.state, held=False, goes_back=True)  # what they hold is of no use
    withdraw = WithdrawCheckpoints(after_step=step)
    return accepted(replace(broken, state=settling, commands=(withdraw, *broken.commands)), event, told)


def _back(state: Training, event: RewindAsked) -> Story:
    story, hold = state.story, state.story.course.hold
    hold = event.to.step if hold is not None and hold <= state.granted else hold  # one that is to come, comes
    return replace(story, checkpoint=event.to, course=replace(story.course, hold=hold))
