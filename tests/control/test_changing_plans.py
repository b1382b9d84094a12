"""The plan of a live run changes: spares, drains, resizes, returns, and whatever goes wrong with them."""

from dataclasses import replace

import pytest

from raymega.control.commands import Answer, AssignPlan, Grant, Rewind, StopWorkers, WriteTransition
from raymega.control.events import DrainAsked, NodesChanged, ResizeAsked, StopAsked, Tick
from raymega.control.invariants import validate_state
from raymega.control.loop import Turn, run
from raymega.control.states import Failed, Finished, Moving, Restoring, first_state
from raymega.mesh import Mesh
from raymega.plan.plan import Plan
from tests.control.fake_hands import FakeHands, moving_brain, nodes
from tests.control.fake_plans import FakeMoves


class Witness:
    """Keeps every turn, each of which keeps the invariants."""

    def __init__(self, rules: object) -> None:
        self.turns, self.rules = [], rules

    def saw(self, turn: Turn) -> None:
        validate_state(turn.decision.state, self.rules)
        self.turns.append(turn)


def play(hands: FakeHands, **rules: float) -> tuple[Finished | Failed, Witness]:
    mind = moving_brain(**{"steps": 60, "save_every": 0, **rules})
    witness = Witness(mind.rules)
    last = run(first_state(epoch=1), brain=mind, hands=hands, watchers=[witness])
    assert not hands.seats, "no worker is left behind"
    assert [record.step for record in hands.metrics] == list(range(1, last.story.committed + 1))
    return last, witness


def told(hands: FakeHands, kind: type) -> list:
    return [command for command in hands.commands if isinstance(command, kind)]


def meshes(hands: FakeHands) -> list[str]:
    return list(dict.fromkeys(record.mesh for record in hands.metrics))


def test_a_warm_standby_takes_the_place_of_the_lost_and_is_replaced():
    hands = FakeHands(nodes=nodes(6), work=True, kill_once={40: 3})
    last, _ = play(hands, standbys=1)
    (move,) = told(hands, WriteTransition)
    assert (last.exit_code, last.story.steps_lost, move.certified) == (0, 0, True)
    assert move.step == 40, "right after the step that is repaired"
    assert hands.metrics[-1].generation == hands.metrics[40].generation
    assert hands.started == ["w0", "w1", "w2", "w3", "w4", "w5"], "one standby, and another once that is used"
    assert [a.plan.lost for a in told(hands, AssignPlan)] == [frozenset(), frozenset({(1, 1)}), frozenset()]


class Asked(FakeMoves):
    """Says so when it is asked for a plan."""

    def plan_for(self, seats: object, wish: object) -> object:
        self.times.append(len(seats))
        return super().plan_for(seats, wish)


def test_a_repaired_step_gets_leave_before_anyone_is_asked_for_another_plan():
    mind, hands = moving_brain(save_every=0, standbys=1), FakeHands(nodes=nodes(6), work=True, kill_once={9: 3})
    mind, witness = replace(mind, moves=(asked := Asked())), Witness(mind.rules)
    asked.times, counts = [], []
    witness.saw = lambda turn: (witness.turns.append(turn), counts.append(len(asked.times)))
    run(first_state(epoch=1), brain=mind, hands=hands, watchers=[witness])
    at = next(n for n, turn in enumerate(witness.turns) if isinstance(turn.before, Restoring))
    ready, then = witness.turns[at : at + 2]
    (grant,) = ready.decision.commands
    assert (type(grant), grant.until, counts[at]) == (Grant, 9, counts[at - 1]), "the one step, and nobody is asked"
    assert (type(then.event), then.t, then.decision.state.change.boundary) == (Tick, ready.t, 9), "at once, right after"
    assert counts[at + 1] > counts[at]


def test_no_more_standbys_join_than_places_are_lost():
    hands = FakeHands(nodes=nodes(7), work=True, kill_once={20: 3})
    last, _ = play(hands, standbys=2)
    (move,) = told(hands, WriteTransition)
    assert (last.story.steps_lost, move.certified) == (0, True)
    assert [len(assigned.plan.living) for assigned in told(hands, AssignPlan)] == [4, 3, 4]
    assert all(one.settle.version.step == one.step for one in told(hands, AssignPlan)[1:]), "who has not heard is told"


def test_without_standbys_a_free_device_gets_a_worker_beside_the_run():
    hands = FakeHands(nodes=nodes(5), work=True, kill_once={10: 0}, step_s=1.0)
    last, _ = play(hands)
    (move,) = told(hands, WriteTransition)
    assert (last.story.steps_lost, hands.started[-1], move.certified) == (0, "w4", True)
    assert "1 of its teams is lost" in move.cause
    assert move.prepare_s > 2.0
    assert move.actual_s < 1.0


class Tight(FakeMoves):
    """Knows of devices that hold no more than a whole stage of the first plan."""

    def lacks(self, plan: Plan, seats: object) -> str | None:
        return None if plan.layers == ((0, 2), (2, 4)) else "stage 0 needs 9.0 GB of 8.0 GB a device"


def test_a_plan_that_its_devices_cannot_hold_does_not_follow():
    mind, hands = moving_brain(save_every=0), FakeHands(nodes=nodes(4), work=True, kill_once={10: 3}, by_work=True)
    mind, witness = replace(mind, moves=Tight()), Witness(mind.rules)
    last = run(first_state(epoch=1), brain=mind, hands=hands, watchers=[witness])
    assert (last.exit_code, last.story.steps_lost, told(hands, WriteTransition)) == (0, 0, [])
    assert [assigned.plan.lost for assigned in told(hands, AssignPlan)] == [frozenset(), frozenset({(1, 1)})]


def test_a_drain_moves_the_run_off_its_node_before_the_deadline():
    hands = FakeHands(nodes=nodes(2, 2, 2))
    hands.tell(4.0, DrainAsked(request=3, node="n1", by_t=1034.0, cause="asked by ann"))
    last, witness = play(hands)
    (move,) = told(hands, WriteTransition)
    (answer,) = told(hands, Answer)
    assert (last.exit_code, last.story.steps_lost, answer.request, answer.accepted) == (0, 0, 3, True)
    assert "n1 is to go: asked by ann" in move.cause
    assert {"w2", "w3"} <= set(told(hands, StopWorkers)[0].workers)
    moved = next(t for t in witness.turns if isinstance(t.before, Moving) and not isinstance(t.decision.state, Moving))
    assert moved.t < 1034.0
    assert {seat.node for seat in moved.decision.state.seats} == {"n0", "n2"}


def test_a_drain_without_room_leaves_the_node_by_rerouting_or_uneven_stages():
    hands = FakeHands(nodes=nodes(2, 1, 1))
    hands.tell(4.0, DrainAsked(request=None, node="n2", by_t=1014.0, cause="a notice"))
    last, _ = play(hands)
    assert (last.exit_code, last.story.steps_lost, told(hands, Answer)) == (0, 0, [])
    assert told(hands, WriteTransition)[0].certified


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (DrainAsked(request=1, node="n7", by_t=1099.0, cause="x"), "no node n7"),
        (DrainAsked(request=1, node="n0", by_t=1099.0, cause="x"), "nothing can take over from n0"),
        (ResizeAsked(request=1, devices=9), "9 devices are more than the 4 that are there"),
        (ResizeAsked(request=1, devices=2), "below elastic.min_devices 3"),
        (ResizeAsked(request=1, mesh=Mesh(dp=3, pp=2, tp=1)), "dp=3 tp=1 pp=2 does not fit"),
    ],
)
def test_what_cannot_be_is_refused_and_the_run_goes_on(event, says):
    hands = FakeHands(nodes=nodes(4))
    hands.tell(4.0, event)
    last, _ = play(hands, min_devices=3)
    (answer,) = told(hands, Answer)
    assert (answer.accepted, says in answer.reason) == (False, True), answer.reason
    assert (last.exit_code, told(hands, WriteTransition)) == (0, [])


def test_a_resize_holds_through_a_loss_until_the_next_one():
    hands = FakeHands(nodes=nodes(4), work=True, step_s=0.3)
    hands.tell(4.0, ResizeAsked(request=1, mesh=Mesh(dp=1, pp=2, tp=1)))
    hands.tell(9.0, ResizeAsked(request=2, devices=4))
    last, _ = play(hands)
    assert meshes(hands) == ["dp=2 tp=1 pp=2", "dp=1 tp=1 pp=2"]
    assert hands.metrics[-1].mesh == "dp=2 tp=1 pp=2"
    assert [a.accepted for a in told(hands, Answer)] == [True, True]
    assert [(m.before.dp, m.after.dp) for m in told(hands, WriteTransition)] == [(2, 1), (1, 2)]
    assert told(hands, StopWorkers)[0].workers == ("w2", "w3"), "who has no part gives back its device"
    assert last.story.steps_lost == 0


@pytest.mark.parametrize("member", range(6))
def test_a_death_in_a_transition_rolls_it_back_and_costs_no_step(member):
    hands = FakeHands(nodes=nodes(4, 2), kill_in_move={1: member})
    hands.tell(4.0, ResizeAsked(request=1, mesh=Mesh(dp=3, pp=2, tp=1)))
    last, _ = play(hands)
    first, *others = told(hands, WriteTransition)
    assert (last.exit_code, last.story.steps_lost, told(hands, Rewind)) == (0, 0, [])
    assert (first.certified, "rolled back" in first.reason) == (False, True)
    assert all(move.certified for move in others)


def test_what_the_certificate_refuses_is_rolled_back_and_not_tried_again():
    hands = FakeHands(nodes=nodes(4), spoil_move={1})
    hands.tell(4.0, ResizeAsked(request=1, mesh=Mesh(dp=1, pp=2, tp=1)))
    last, witness = play(hands)
    (move,) = told(hands, WriteTransition)
    assert (last.exit_code, last.story.steps_lost, move.certified) == (0, 0, False)
    assert any("the moved state is refused: w0 is at step" in turn.decision.reason for turn in witness.turns)
    assert meshes(hands) == ["dp=2 tp=1 pp=2"]


@pytest.mark.parametrize("in_move_s", [0.0, 0.1])
def test_a_stop_while_state_moves_is_one_more_step_and_a_save(in_move_s):
    hands = FakeHands(nodes=nodes(4), move_s=1.0, step_s=0.2)
    hands.tell(4.0, ResizeAsked(request=1, mesh=Mesh(dp=1, pp=2, tp=1)))
    hands.tell(5.0 + in_move_s, StopAsked(by="user"))
    last, witness = play(hands)
    assert any(isinstance(turn.before, Moving) and isinstance(turn.event, StopAsked) for turn in witness.turns)
    assert (last.exit_code, last.story.safe_step) == (0, last.story.committed)
    assert told(hands, WriteTransition)[0].step == last.story.committed - 1


def test_a_second_drain_while_state_moves_is_the_next_change():
    hands = FakeHands(nodes=nodes(2, 2, 2, 2), move_s=1.0)
    hands.tell(4.0, DrainAsked(request=1, node="n1", by_t=1060.0, cause="x"))
    hands.tell(6.7, DrainAsked(request=2, node="n0", by_t=1060.0, cause="y"))
    last, _ = play(hands, steps=200)
    assert [a.accepted for a in told(hands, Answer)] == [True, True]
    assert [m.certified for m in told(hands, WriteTransition)] == [True, True]
    assert last.story.steps_lost == 0


def test_a_fresh_worker_that_does_not_come_to_life_is_done_without():
    hands = FakeHands(nodes=nodes(2, 2, 1, 1), work=True, kill_once={10: 3}, unborn={"w4"}, step_s=1.0, by_work=True)
    last, _ = play(hands)
    (move,) = told(hands, WriteTransition)
    assert (last.story.steps_lost, move.certified, "w5" in hands.started) == (0, True, True)
    assert last.story.avoided == {"n1"}


def test_a_node_that_comes_back_is_grown_onto_once_it_is_steady():
    hands = FakeHands(nodes=nodes(2), step_s=1.0)
    hands.tell(10.0, NodesChanged(nodes=nodes(2, 2)))
    _, witness = play(hands, steady_s=20.0)
    began = next(turn.t for turn in witness.turns if isinstance(turn.decision.state, Moving))
    assert 1030.0 <= began < 1034.0
    assert hands.metrics[-1].mesh == "dp=2 tp=1 pp=2"


def test_a_node_that_flaps_is_left_alone():
    hands = FakeHands(nodes=nodes(2), step_s=1.0)
    for turn in range(5):
        hands.tell(5.0 + 8 * turn, NodesChanged(nodes=nodes(2, 2)))
        hands.tell(9.0 + 8 * turn, NodesChanged(nodes=nodes(2)))
    last, _ = play(hands, steady_s=5.0)
    assert (told(hands, WriteTransition), last.story.outlook.flaps) == ([], 5)


def test_a_loss_while_stopping_is_repaired_and_the_stop_goes_on():
    hands = FakeHands(nodes=nodes(4), work=True, kill_once={21: 2})
    hands.tell_at[19] = StopAsked(by="terminate")
    last, _ = play(hands)
    assert (last.exit_code, last.story.safe_step, last.story.steps_lost) == (75, last.story.committed, 0)
    assert last.story.committed >= 21


def test_predictions_stand_beside_what_it_took():
    hands = FakeHands(nodes=nodes(6), work=True, kill_once={20: 3, 30: 1, 40: 0})
    play(hands, standbys=1)
    moves = told(hands, WriteTransition)
    assert len(moves) >= 2
    assert abs(moves[-1].predicted_s - moves[-1].actual_s) < 0.5 * moves[0].predicted_s + 0.2
    assert all(move.predicted_step_s > 0 for move in moves)


def test_a_change_is_dropped_where_no_step_is_left():
    hands = FakeHands(nodes=nodes(4))
    hands.tell_at[19] = ResizeAsked(request=1, devices=2)
    last, _ = play(hands, steps=20)
    assert (last.exit_code, told(hands, WriteTransition)) == (0, [])
    (answer,) = told(hands, Answer)
    assert not answer.accepted
    assert answer.reason == "2 devices: no step is left: the next boundary is the end, at 20"


def test_a_wish_that_is_underway_already_is_told_so_and_one_that_is_fulfilled_as_well():
    hands = FakeHands(nodes=nodes(4), work=True, step_s=0.3)
    for t, request in ((4.0, 1), (4.05, 2), (9.0, 3)):
        hands.tell(t, ResizeAsked(request=request, devices=2))
    play(hands)
    _, again, late = [answer.reason for answer in told(hands, Answer)]
    assert again == "2 devices: underway already, dp=1 tp=1 pp=2 is being prepared"
    assert late == "2 devices: the run is so already"


def test_the_step_before_a_move_is_summed_in_full_where_gradients_are_coded():
    hands = FakeHands(nodes=nodes(5), work=True, kill_once={10: 0}, step_s=1.0)
    last, _ = play(hands, codes=True)
    (move,) = told(hands, WriteTransition)
    full = [(grant.generation, step) for grant in told(hands, Grant) for step in grant.full_at]
    assert (last.exit_code, move.certified) == (0, True)
    assert [step for _, step in full] == [move.step], "nobody had leave for it before"
    granted = [grant.until for grant in told(hands, Grant) if grant.generation == full[0][0] and not grant.full_at]
    assert all(until < move.step for until in granted)
