"""A live run is asked to go back to a checkpoint that it keeps: what is void, what stays, and what is refused."""

from dataclasses import replace

import pytest

from raymega.control.commands import AbortGeneration, Answer, AssignPlan, Finish, Rewind, WithdrawCheckpoints
from raymega.control.course import Course
from raymega.control.events import ControllerTakenOver, PauseAsked, ResumeAsked, RewindAsked, StopAsked, WorkerLost
from raymega.control.loop import run
from raymega.control.states import Checkpoint, Settling, first_state, with_story
from raymega.control.transitions import decide
from tests.control.examples import BACK, CKPT, IN, TRAINING, left
from tests.control.fake_hands import FakeHands, brain, nodes
from tests.control.test_steering import Kept, commands


def played(*asked: tuple[float, object], **world):
    """20 steps of 0.3 s after a start of 2 s; saves after 5, 10, .."""
    hands = FakeHands(nodes=nodes(2, 2), step_s=0.3, **world)
    for after_s, event in asked:
        hands.tell(after_s, event)
    turns = []
    last = run(first_state(epoch=1), brain=brain(), hands=hands, watchers=[Kept(turns)])
    return last, hands, turns


def test_everyone_leaves_its_step_and_loads_and_later_checkpoints_are_withdrawn_first():
    asked = decide(brain(), TRAINING, BACK, 100.0)
    assert [type(command) for command in asked.commands] == [Answer, WithdrawCheckpoints, AbortGeneration]
    assert "back to the checkpoint of step 5, as asked: 4 steps are void" in asked.reason
    state = asked.state
    for worker in ("w0", "w1", "w2", "w3"):
        decision = decide(brain(), state, left(worker), 101.0)
        state = decision.state
    assert [type(command).__name__ for command in decision.commands] == ["Rewind", "AssignPlan", "FeedFrom"]
    (assign,) = [command for command in decision.commands if isinstance(command, AssignPlan)]
    assert (assign.step, assign.checkpoint, assign.keep_state) == (5, CKPT, False)
    assert (state.story.steps_lost, state.story.recoveries, state.story.furthest) == (0, 0, 5)


@pytest.mark.parametrize("losses", [{}, {"kill_after": [(6.02, 1)]}, {"kill_after": [(7.5, 1)], "work": True}])
def test_a_run_that_went_back_trains_each_step_again_to_its_end(losses):
    back = RewindAsked(request=1, to=Checkpoint(step=5, uri="mem://5", tokens_total=4000), newest=10)
    last, hands, turns = played((6.0, back), **losses)
    assert (last.exit_code, last.story.tokens_total) == (0, 20 * 800)
    assert [record.step for record in hands.metrics] == list(range(1, 21))
    assert commands(turns, WithdrawCheckpoints) == [WithdrawCheckpoints(after_step=5)]
    assert commands(turns, Rewind)[0] == Rewind(step=5)
    assert commands(turns, Finish)[0].steps_lost <= 15 * bool(losses)


def test_a_run_that_is_held_is_held_where_it_goes_back_to():
    held = with_story(TRAINING, replace(TRAINING.story, course=Course(hold=10)))
    assert decide(brain(), held, BACK, 100.0).state.story.course.hold == 5
    later = with_story(TRAINING, replace(TRAINING.story, course=Course(hold=15)))
    assert decide(brain(), later, BACK, 100.0).state.story.course.hold == 15, "it is not held yet"
    back = RewindAsked(request=2, to=Checkpoint(step=5, uri="mem://5"), newest=15)
    last, hands, _ = played((6.0, PauseAsked(request=1)), (8.0, back), (40.0, ResumeAsked(request=3)))
    times = {record.step: record.t for record in hands.metrics}
    assert (last.exit_code, times[6] > 1040.0) == (0, True)


@pytest.mark.parametrize("state", ["waiting", "starting", "restoring", "moving", "settling", "stopping", "saving"])
def test_where_nobody_trains_it_is_refused_and_the_run_goes_on_as_it_is(state):
    decision = decide(brain(), IN[state], BACK, 100.0)
    (answer,) = decision.commands
    assert (answer.accepted, decision.state) == (False, IN[state])
    assert answer.soon == (state not in ("stopping", "saving"))


@pytest.mark.parametrize(
    ("asked", "publishing", "says"),
    [
        (replace(BACK, to=Checkpoint(step=12, uri="mem://12"), newest=12), False, "step 12 is not committed yet"),
        (replace(BACK, newest=4), False, "just being published"),
        (BACK, True, "just being published"),
    ],
)
def test_a_checkpoint_that_may_not_be_there_when_it_is_loaded_is_refused(asked, publishing, says):
    saves = tuple(replace(save, publishing=publishing) for save in TRAINING.saves)
    (answer,) = decide(brain(), replace(TRAINING, saves=saves), asked, 100.0).commands
    assert (answer.accepted, says in answer.reason, answer.soon) == (False, True, says == "just being published")


def test_a_stop_or_another_controller_meanwhile_find_a_run_that_has_gone_back():
    going = decide(brain(), TRAINING, BACK, 100.0).state
    assert isinstance(going, Settling)
    (*_, finish) = decide(brain(), going, StopAsked(by="user"), 101.0).commands
    assert isinstance(finish, Finish)
    assert finish.resume_step == 5
    taken = decide(brain(), going, ControllerTakenOver(epoch=2), 101.0)
    assert taken.commands[0] == WithdrawCheckpoints(after_step=5)
    lost = decide(brain(), taken.state, WorkerLost(worker="w1", node="n0", cause="SIGKILL"), 102.0)
    assert lost.state.goes_back
