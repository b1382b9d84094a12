"""Sizes that the calendar, or a run that goes first, tells a run: bounds that hold, and nothing restarts for them."""

from raymega.control.commands import Answer, AssignPlan, StopWorkers, WriteTransition
from raymega.control.events import NodesChanged, ResizeAsked
from raymega.control.states import Starting, first_state
from raymega.control.transitions import decide
from raymega.mesh import Mesh
from tests.control.fake_hands import FakeHands, moving_brain, nodes
from tests.control.test_changing_plans import meshes, play, told

NIGHT = "the calendar gives 2 devices from 22:00 to 08:00 (UTC)"


def test_the_calendar_shrinks_a_run_and_lets_it_grow_again_and_no_step_is_lost():
    hands = FakeHands(nodes=nodes(4), work=True, step_s=0.3)
    hands.tell(4.0, ResizeAsked(request=None, devices=2, cause=NIGHT))
    hands.tell(9.0, ResizeAsked(request=None, devices=4, cause="the calendar gives 4 devices"))
    last, _ = play(hands)
    assert [(move.before.dp, move.after.dp) for move in told(hands, WriteTransition)] == [(2, 1), (1, 2)]
    assert told(hands, StopWorkers)[0].workers == ("w2", "w3"), "they give back their devices"
    assert (last.story.steps_lost, hands.started, told(hands, Answer)) == (0, [f"w{n}" for n in range(6)], [])


def test_more_devices_than_there_are_is_a_bound_and_not_refused():
    hands = FakeHands(nodes=nodes(4))
    hands.tell(4.0, ResizeAsked(request=None, devices=12, cause="the calendar gives 12 devices"))
    last, witness = play(hands)
    turn = next(turn for turn in witness.turns if isinstance(turn.event, ResizeAsked))
    assert turn.decision.reason == (
        "the calendar gives 12 devices: 12 devices: the run stays on 4 as dp=2 tp=1 pp=2, 4 are there for it now"
    )
    assert not turn.decision.state.story.outlook.wish.pending
    assert (meshes(hands), last.exit_code) == (["dp=2 tp=1 pp=2"], 0)


def test_what_is_told_before_the_first_plan_is_what_the_first_plan_is_made_for():
    brain = moving_brain()
    before = decide(brain, first_state(epoch=1), ResizeAsked(request=None, devices=2, cause=NIGHT), 1000.0)
    assert before.state.story.outlook.wish.devices == 2
    begun = decide(brain, before.state, NodesChanged(nodes=nodes(4)), 1000.5)
    assert isinstance(begun.state, Starting)
    (assign,) = [command for command in begun.commands if isinstance(command, AssignPlan)]
    assert assign.plan.mesh == Mesh(dp=1, pp=2, tp=1)


def test_a_run_grows_onto_devices_that_another_has_freed():
    hands = FakeHands(nodes=nodes(2), work=True, step_s=0.3)
    hands.tell(4.0, NodesChanged(nodes=nodes(4)))
    last, _ = play(hands)
    (grown,) = told(hands, WriteTransition)
    assert (grown.before.dp, grown.after.dp, grown.cause) == (1, 2, "there are devices to grow onto")
    assert (last.exit_code, last.story.steps_lost) == (0, 0)


def test_a_size_below_the_least_is_refused_and_the_run_goes_on():
    hands = FakeHands(nodes=nodes(4))
    hands.tell(4.0, ResizeAsked(request=None, devices=2, cause=NIGHT))
    last, _ = play(hands, min_devices=3)
    assert (last.exit_code, told(hands, WriteTransition)) == (0, [])


def test_devices_that_are_not_worth_a_change_are_told_of_once_with_the_reason():
    hands = FakeHands(nodes=nodes(2), step_s=1.0)
    hands.tell(30.0, NodesChanged(nodes=nodes(2, 2)))
    _, witness = play(hands, steps=45, steady_s=20.0)
    (told_once,) = [turn.decision.reason for turn in witness.turns if "stays" in turn.decision.reason]
    assert told_once.startswith("2 more devices are there and dp=1 tp=1 pp=2 stays: keep rerouting: 16.0 s for")
    assert told_once.endswith("(reshard fully)")


def test_a_node_that_is_there_and_left_out_is_named_where_devices_are_counted():
    hands = FakeHands(nodes=nodes(2, 2, 1, 1), work=True, kill_once={10: 3}, unborn={"w4"}, step_s=1.0, by_work=True)
    hands.tell(40.0, ResizeAsked(request=1, devices=9))
    last, _ = play(hands)
    assert last.story.avoided == {"n1"}
    (answer,) = told(hands, Answer)
    assert "the 5 that are there; none is started on n1, where a worker did not come to life." in answer.reason
