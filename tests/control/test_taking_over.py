"""A controller may die anywhere: the next one finishes the same step, and the run loses nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.control.commands import AssignPlan, Finish, StopWorkers, WriteStep
from raymega.control.events import ResizeAsked, StopAsked
from raymega.control.states import Failed, Finished, Moving, Settling, Stopping, Training
from raymega.control.transitions import decide
from raymega.mesh import Mesh
from tests.control.examples import IN, TAKEN, left
from tests.control.fake_hands import FakeHands, brain, lacks_loss, moving_brain, nodes
from tests.control.taken_over import Death, play_through
from tests.control.test_repairing import promise

RULES = {"eval_every": 4, "steps": 12}
FAULTS = {"kill_once": {4: 3, 7: 0}, "ahead": {7}}


def hands(**faults: object) -> FakeHands:
    return FakeHands(**{"nodes": nodes(4), "work": True, **faults})


def num_turns(**faults: object) -> int:
    _, decided = play_through(hands(**faults), (), brain=brain(**RULES))
    return len(decided[0])


@pytest.mark.parametrize("sent", [-1, 1])
@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["calm", "losses"])
def test_the_run_finishes_from_every_prefix_of_its_journal_and_loses_nothing(sent, faults):
    for turn in range(1, num_turns(**faults) + 1):
        world = hands(**{name: type(value)(value) for name, value in faults.items()})
        last, _ = play_through(world, [Death(turn=turn, sent=sent)], brain=brain(**RULES))
        assert (last.exit_code, last.story.steps_lost) == (0, 0), (turn, last)
        assert last.story.committed == last.story.safe_step == 12
        if world.finish is not None:  # else it was written that the run is over, and no more was done
            assert [record.step for record in world.metrics] == list(range(1, 13)), turn
            assert lacks_loss(world.metrics, brain(**RULES).rules) == [], turn
            assert (len(world.started), world.seats) == (4, {}), "who was asked for and never came is replaced"


def test_a_controller_that_dies_in_a_step_costs_one_regrouping_and_no_process():
    world = hands()
    _, (before, after) = play_through(world, [Death(turn=8, sent=1)], brain=brain())
    assert isinstance(before[-1].state, Training)
    assert isinstance(after[0].state, Settling)
    (assign,) = [c for decision in after for c in decision.commands if isinstance(c, AssignPlan)]
    assert (assign.generation, assign.keep_state, set(assign.repair)) == (2_000_001, True, {"w0", "w1", "w2", "w3"})
    assert before[-1].state.story.generation == 1_000_001


def test_a_controller_that_dies_in_a_repair_does_not_make_it_fail():
    world = hands(kill_once={9: 1})
    _, decided = play_through(world, (), brain=brain())
    broken = next(n for n, decision in enumerate(decided[0], start=1) if isinstance(decision.state, Settling))
    world = hands(kill_once={9: 1})
    deaths = [Death(turn=broken + 3, sent=1), Death(turn=2, sent=1)]
    last, _ = play_through(world, deaths, brain=brain())
    assert (last.exit_code, last.story.steps_lost) == (0, 0)


def test_a_controller_and_a_worker_that_die_together_cost_no_step():
    world = hands(kill_once={8: 2})
    last, decided = play_through(world, [Death(turn=11, sent=-1)], brain=brain())
    assert (last.exit_code, last.story.steps_lost, len(decided)) == (0, 0, 2)
    assert world.started == ["w0", "w1", "w2", "w3"]


def test_a_stop_that_was_underway_is_not_forgotten():
    _, decided = play_through(hands(tell_at={7: StopAsked(by="interrupt")}), (), brain=brain())
    asked = next(n for n, decision in enumerate(decided[0], start=1) if isinstance(decision.state, Stopping))
    for turn in range(asked, len(decided[0])):
        world = hands(tell_at={7: StopAsked(by="interrupt")})
        last, _ = play_through(world, [Death(turn=turn, sent=1)], brain=brain())
        assert last.exit_code == 130, turn
        assert last.story.committed == last.story.safe_step < 20


def test_a_worker_without_a_state_is_done_without():
    state = decide(brain(), IN["training"], TAKEN, 100.0).state
    for said in (promise("w0"), promise("w1"), promise("w2"), left("w3", committed=-1)):
        decision = decide(brain(), state, said, 101.0)
        state = decision.state
    assert StopWorkers(workers=("w3",)) in decision.commands
    assert decision.state.plan.lost == frozenset({(1, 1)})


def test_controllers_that_die_without_progress_end_the_run():
    deaths = [Death(turn=8, sent=1), *[Death(turn=6, sent=1)] * 4]
    world = hands()
    last, _ = play_through(world, deaths, brain=brain(max_restarts=2))
    assert isinstance(last, Failed)
    assert "2 recoveries brought no new step" in last.reason


@settings(max_examples=40)
@given(
    deaths=st.lists(st.builds(Death, turn=st.integers(1, 40), sent=st.integers(-1, 3)), max_size=4),
    kill_once=st.dictionaries(st.integers(1, 20), st.integers(0, 3), max_size=2),
    break_once=st.sets(st.integers(1, 20), max_size=2),
    jitter=st.integers(0, 100),
    work=st.booleans(),
)
def test_whatever_dies_each_step_is_written_once_and_the_run_ends_once(deaths, kill_once, break_once, jitter, work):
    world = hands(kill_once=kill_once, break_once=break_once, jitter=jitter, work=work)
    mind = brain(max_restarts=20, eval_every=3)
    last, decided = play_through(world, deaths, brain=mind)
    assert isinstance(last, Finished | Failed)
    commands = [command for one in decided for decision in one for command in decision.commands]
    assert sum(isinstance(command, Finish) for command in commands) == 1
    assert {c.record.step for c in commands if isinstance(c, WriteStep)} >= set(range(1, last.story.committed + 1))
    if world.finish is not None:
        assert world.seats == {}
        assert [record.step for record in world.metrics] == list(range(1, last.story.committed + 1))
        assert lacks_loss(world.metrics, mind.rules) == []


def resized() -> FakeHands:
    world = hands(step_s=0.3)
    world.tell(4.0, ResizeAsked(request=1, mesh=Mesh(dp=1, pp=2, tp=1)))
    world.tell(7.0, ResizeAsked(request=2, mesh=Mesh(dp=2, pp=2, tp=1)))
    return world


@pytest.mark.parametrize("sent", [-1, 0, 1])
def test_a_controller_that_dies_while_the_plan_changes_costs_no_step(sent):
    mind = moving_brain(steps=30)
    _, (calm,) = play_through(resized(), (), brain=mind)
    near = {n + d for n, decision in enumerate(calm) for d in range(3) if isinstance(decision.state, Moving)}
    assert len(near) > 8
    for turn in sorted(near):
        last, _ = play_through(resized(), [Death(turn=turn, sent=sent)], brain=mind)
        assert (last.exit_code, last.story.steps_lost, last.story.committed) == (0, 0, 30), turn


def test_workers_that_were_asked_for_and_never_started_do_not_speak_against_their_nodes():
    world = hands(nodes=nodes(2, 2, 2))
    last, (_, after) = play_through(world, [Death(turn=1, sent=0)], brain=brain())
    assert (last.exit_code, len(world.started)) == (0, 4)
    assert {decision.state.story.avoided for decision in after} == {frozenset()}
