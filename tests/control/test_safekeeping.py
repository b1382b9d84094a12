"""A notice that nobody can answer: the run saves once before its node goes, goes on, and is resumed from there."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.control.commands import Answer, AssignPlan, Grant, PublishCheckpoint
from raymega.control.events import DrainAsked, NodesChanged, PauseAsked
from raymega.control.loop import Turn, run
from raymega.control.states import SavesUnderway, Training, first_state
from raymega.control.transitions import decide
from tests.control.examples import CKPT, TRAINING
from tests.control.fake_hands import FakeHands, brain, moving_brain, nodes
from tests.control.test_steering import Kept, commands

STEPS = 60
MINDS = {"its own": moving_brain, "the user's own": brain}
STARTED_S = 2.0  # of the first workers


def notice(node: str, *, by_t: float = 1022.0, request: int | None = None) -> DrainAsked:
    return DrainAsked(request=request, node=node, by_t=by_t, cause="a notice")


def played(hands: FakeHands, mind):
    turns: list[Turn] = []
    return run(first_state(epoch=1), brain=mind, hands=hands, watchers=[Kept(turns)]), turns


def noticed(devices: list[int], *, at_s: float, lasts_s: float, times: int = 1, **world) -> FakeHands:
    """All nodes are told to go, `times` over, and are gone after `lasts_s`."""
    hands = FakeHands(nodes=nodes(*devices), save_s=0.05, **world)
    for number in range(times):
        for node in hands.nodes:
            hands.tell(at_s + 0.01 * number, notice(node.node, by_t=1000.0 + at_s + lasts_s))
    hands.tell(at_s + lasts_s, NodesChanged(nodes=()))
    return hands


@settings(max_examples=60, deadline=None)
@given(
    devices=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    at_s=st.floats(0.1, 8.0),
    step_s=st.sampled_from([0.2, 1.6, 12.0]),
    times=st.integers(1, 3),
    mind=st.sampled_from(list(MINDS)),
)
def test_where_all_nodes_are_to_go_one_save_comes_before_and_the_run_goes_on_until_then(
    devices, at_s, step_s, times, mind
):
    rules = {"steps": 1000, "save_every": 0}
    ahead = 0.75 / step_s + 3
    hands = noticed(devices, at_s=at_s, lasts_s=12 * step_s + STARTED_S, times=times, step_s=step_s)
    last, turns = played(hands, MINDS[mind](**rules))
    ordered = [step for grant in commands(turns, Grant) for step in grant.save_at]
    told_t = 1000.0 + max(at_s, STARTED_S)
    before = sum(record.t <= told_t for record in hands.metrics)
    assert len(ordered) == len(commands(turns, PublishCheckpoint)) == 1, "once, however often it is told"
    assert before < ordered[0] <= before + ahead
    assert hands.finish.resume_step == ordered[0] == last.story.safe_step
    assert last.story.furthest > ordered[0], "the run goes on"


def test_a_notice_is_answered_in_a_line_that_says_first_what_is_done():
    mind = moving_brain(save_every=0)
    alone = replace(TRAINING, saves=(), story=replace(TRAINING.story, nodes=nodes(2, 2)))
    first = decide(mind, alone, notice("n0", by_t=122.0), 100.0)
    both = decide(mind, first.state, notice("n1", by_t=122.0), 100.0)
    assert both.reason.startswith("nothing can take over from n0, n1 in time: a checkpoint is saved at the next step, ")
    assert len(both.reason) < 200
    assert "dealt with when it comes" not in both.reason


def unanswered(training: Training, **rules: int):
    """Its model is the user's own, so nothing can take over."""
    return decide(brain(save_every=0, **rules), training, notice("n0", by_t=122.0), 100.0)


@pytest.mark.parametrize(
    ("training", "says"),
    [
        (TRAINING, "the checkpoint of step 10 is underway"),
        (
            replace(TRAINING, saves=(), story=replace(TRAINING.story, checkpoint=replace(CKPT, step=9))),
            "the checkpoint of step 9 is complete",
        ),
        (replace(TRAINING, saves=(), granted=19), "step 20 is the last, which is saved anyway"),
    ],
)
def test_what_is_saved_anyway_is_not_saved_again(training: Training, says: str):
    decision = unanswered(training)
    assert says in decision.reason
    assert decision.state.story.course.saves == ()
    assert decision.state.story.outlook.saved_for == {"n0"}


def test_an_old_save_that_is_underway_is_not_enough():
    old = SavesUnderway(step=5, since=90.0, tokens_total=4000)
    assert unanswered(replace(TRAINING, saves=(old,))).state.story.course.saves == (11,)


def test_a_held_run_saves_where_it_stands_and_stays_held():
    hands = noticed([4], at_s=20.0, lasts_s=10.0, step_s=0.3)
    hands.tell(4.0, PauseAsked(request=1, after_step=9))
    last, turns = played(hands, moving_brain(steps=STEPS, save_every=0))
    assert (hands.finish.resume_step, last.story.furthest, last.story.steps_lost) == (9, 9, 0)
    assert [grant.save_at for grant in commands(turns, Grant) if grant.save_at] == [(9,)]


def test_a_person_who_asks_for_what_cannot_be_gets_a_short_answer_and_no_save():
    hands = FakeHands(nodes=nodes(4), step_s=0.3)
    hands.tell(4.0, notice("n0", request=3))
    _, turns = played(hands, moving_brain(save_every=0))
    (answer,) = commands(turns, Answer)
    assert (answer.accepted, len(answer.reason) < 120) == (False, True)
    assert [grant.save_at for grant in commands(turns, Grant) if grant.save_at] == [(20,)]


def test_a_notice_that_a_plan_answers_in_time_orders_no_save():
    hands = FakeHands(nodes=nodes(2, 2, 2), step_s=0.3)
    hands.tell(4.0, notice("n1", by_t=1040.0))
    last, turns = played(hands, moving_brain(steps=STEPS, save_every=0))
    assert (last.exit_code, last.story.steps_lost) == (0, 0)
    assert [step for grant in commands(turns, Grant) for step in grant.save_at] == [STEPS]


def test_a_node_that_comes_back_is_saved_for_again_and_the_run_goes_on_from_each_save():
    hands = FakeHands(nodes=nodes(2), step_s=1.0, save_s=0.05)
    for at_s in (5.0, 40.0):
        hands.tell(at_s, notice("n0", by_t=1010.0 + at_s))
        hands.tell(at_s + 10, NodesChanged(nodes=nodes(0, 2)[1:]))
        hands.tell(at_s + 20, NodesChanged(nodes=nodes(2)))
    last, turns = played(hands, moving_brain(steps=STEPS, save_every=0))
    saved = [step for grant in commands(turns, Grant) for step in grant.save_at]
    again = [assigned.step for assigned in commands(turns, AssignPlan) if not assigned.keep_state]
    assert last.exit_code == 0
    assert saved[2:] == [STEPS]
    assert again == [0, saved[0], saved[0], saved[1], saved[1]], "n1 goes without a notice, right where it began"
