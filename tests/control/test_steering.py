"""What people ask of the course of a run: it holds from a boundary that all share, and through losses too."""

from dataclasses import replace

import pytest

from raymega.control.commands import Answer, Disturb, Grant, Rewind, WriteRepair
from raymega.control.course import Course
from raymega.control.events import CheckpointAsked, DisturbAsked, PauseAsked, ResumeAsked, SetAsked
from raymega.control.loop import run
from raymega.control.states import Training, first_state, with_story
from raymega.control.transitions import decide
from tests.control.examples import IN, TRAINING
from tests.control.fake_hands import FakeHands, brain, moving_brain, nodes

PAUSE, RESUME = PauseAsked(request=1), ResumeAsked(request=2)


def on(course: Course) -> Training:
    return with_story(TRAINING, replace(TRAINING.story, course=course))


def played(*asked: tuple[float, object], mind=None, **world):
    hands = FakeHands(nodes=nodes(2, 2), step_s=0.3, **world)
    for after_s, event in asked:
        hands.tell(after_s, event)
    turns = []
    last = run(first_state(epoch=1), brain=mind or brain(), hands=hands, watchers=[Kept(turns)])
    return last, hands, turns


class Kept:
    def __init__(self, turns: list) -> None:
        self.saw = turns.append


def commands(turns, kind):
    return [command for turn in turns for command in turn.decision.commands if isinstance(command, kind)]


def test_a_pause_gives_no_more_leave_and_a_resume_does():
    paused = decide(brain(), TRAINING, PAUSE, 100.0)
    assert paused.state.story.course.hold == TRAINING.granted
    assert [type(command) for command in paused.commands] == [Answer]
    resumed = decide(brain(), paused.state, RESUME, 101.0)
    assert [command.until for command in resumed.commands if isinstance(command, Grant)] == [11]


def test_a_pause_after_a_step_stands_there_and_is_refused_where_somebody_may_have_passed_it():
    later = decide(brain(), TRAINING, replace(PAUSE, after_step=15), 100.0)
    assert later.state.story.course.hold == 15
    assert decide(brain(), later.state, PAUSE, 101.0).state.story.course.hold == TRAINING.granted, "the earlier counts"
    (refused,) = decide(brain(), TRAINING, replace(PAUSE, after_step=TRAINING.granted - 1), 100.0).commands
    assert (refused.accepted, "leave up to step 10 already" in refused.reason) == (False, True)
    last, hands, _ = played((1.0, replace(PAUSE, after_step=7)), (60.0, RESUME))
    times = {record.step: record.t for record in hands.metrics}
    assert (last.exit_code, times[7] < 1010.0, times[8] > 1060.0) == (0, True, True)


def test_a_paused_run_stands_until_it_is_told_to_go_on():
    last, hands, turns = played((4.0, PAUSE), (30.0, ResumeAsked(request=2, steps=3)), (60.0, RESUME))
    stands = [turn.decision.state.story.course.hold for turn in turns if turn.decision.reason.endswith("is committed)")]
    assert (last.exit_code, stands[-1]) == (0, None)
    times = {record.step: record.t for record in hands.metrics}
    gaps = sorted(step for step in times if step > 1 and times[step] - times[step - 1] > 20)
    assert len(gaps) == 2
    assert gaps[1] - gaps[0] == 3, "three steps were asked for in between"


@pytest.mark.parametrize("state", [name for name in IN if name not in ("finished", "failed")])
@pytest.mark.parametrize(
    "event",
    [
        PAUSE,
        RESUME,
        ResumeAsked(request=3, steps=2),
        SetAsked(request=4, lr=1e-4),
        CheckpointAsked(request=5),
        DisturbAsked(request=6, orders=("kill step=12",)),
    ],
)
def test_each_is_answered_once_wherever_the_run_is(state, event):
    decision = decide(brain(), IN[state], event, 100.0)
    (answer,) = [command for command in decision.commands if isinstance(command, Answer)]
    assert answer.request == event.request
    assert answer.accepted == (state not in ("stopping", "saving"))


@pytest.mark.parametrize("lr", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(lr):
    (answer,) = decide(brain(), TRAINING, SetAsked(request=1, lr=lr), 100.0).commands
    assert (answer.accepted, "no rate to train with" in answer.reason) == (False, True)


def test_a_rate_goes_to_all_with_the_next_leave_and_setting_it_again_changes_nothing():
    told = decide(brain(), TRAINING, SetAsked(request=1, lr=2e-4), 100.0)
    assert told.state.story.course.rates == ((10, 2e-4),)
    again = decide(brain(), told.state, SetAsked(request=2, lr=2e-4), 100.0)
    assert again.state == told.state
    last, _, turns = played((4.0, SetAsked(request=1, lr=2e-4)), kill_once={12: 1}, work=True)
    (rate,) = last.story.course.rates
    assert (last.exit_code, commands(turns, Rewind), len(commands(turns, WriteRepair))) == (0, [], 1)
    for grant in commands(turns, Grant):
        assert (rate in grant.rates) == (grant.until > rate[0]), "whoever may begin a later step knows it"


def test_faults_on_purpose_are_passed_on_and_written_down():
    asked = DisturbAsked(request=6, orders=("kill stage=1 step=12", "drain node=1 step=20"))
    decision = decide(brain(), TRAINING, asked, 100.0)
    assert decision.state == TRAINING
    assert decision.commands[1:] == (Disturb(orders=asked.orders),)
    assert decision.reason == "at its point: kill stage=1 step=12; drain node=1 step=20"


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (((0, 2), (3, 1)), "on purpose the run does without devices: 2 of node 0 and 1 of node 3"),
        ((), "on purpose the run has all its devices back"),
    ],
)
def test_devices_that_a_run_is_to_do_without_are_written_down(without, said: str):
    decision = decide(brain(), TRAINING, DisturbAsked(request=6, without=without), 100.0)
    assert decision.commands[1:] == (Disturb(without=without),)
    assert decision.reason == said


def test_a_checkpoint_is_taken_where_it_was_asked_for():
    last, _, turns = played((4.0, CheckpointAsked(request=1)), mind=brain(save_every=0))
    (answer,) = commands(turns, Answer)
    saved = [step for grant in commands(turns, Grant) for step in grant.save_at]
    assert answer.reason == f"step {saved[0]} is saved"
    assert saved[1:] == [last.story.committed]


def test_a_held_run_is_moved_only_once_it_goes_on():
    decision = decide(moving_brain(), on(Course(hold=10)), RESUME, 100.0)
    assert decision.state.story.course.hold is None
