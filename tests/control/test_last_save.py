"""A loss in the last save, of the last step or of a stop: those who are left save, and no step is done again."""

from dataclasses import replace

import pytest

from raymega.control.commands import Grant, Rewind
from raymega.control.events import StopAsked, WorkersReady
from raymega.control.states import Restoring, SavesUnderway, Saving, Stop, plan_of
from raymega.control.transitions import decide
from tests.control.examples import IN, NEWER, TRAINING, left, lost
from tests.control.fake_hands import FakeHands, brain, nodes
from tests.control.test_whole_runs import play, steps


def without(victim: str, state: Saving | Restoring, *, committed: int) -> Restoring:
    """What follows once `victim` is lost and the others have left."""
    others = [worker for worker in plan_of(state).living if worker != victim]
    gone = [replace(left(worker, committed), generation=state.story.generation) for worker in others]
    for event in (lost(victim), *gone):
        state = decide(brain(), state, event, 100.0).state
    assert isinstance(state, Restoring)
    return state


def ready(state: Restoring):
    return decide(brain(), state, WorkersReady(generation=state.story.generation), 101.0)


def test_the_last_save_is_finished_by_those_who_are_left():
    state = without("w2", without("w3", IN["saving"], committed=20), committed=20)
    decision = ready(state)
    assert decision.commands == (Grant(generation=state.story.generation, until=20, save_at=(20,)),)
    assert decision.state.training.plan.living == ("w0", "w1")


def test_a_stop_whose_save_loses_a_worker_is_saved_at_the_same_step():
    training = replace(TRAINING, granted=9, saves=(SavesUnderway(step=9, since=99.0, tokens_total=7200),))
    saving = ready(
        without("w3", Saving(training=training, stop=Stop(by="user", reason="asked"), since=99.0), committed=9)
    )
    over = decide(brain(), saving.state, NEWER, 102.0).state
    assert (over.exit_code, over.story.committed, over.story.safe_step) == (0, 9, 9)


@pytest.mark.parametrize("rank", range(4))
def test_a_run_whose_last_save_loses_workers_does_no_step_again(rank):
    hands = FakeHands(nodes=nodes(4), work=True, kill_after=[(4.05, rank), (4.35, rank // 2 * 2)])
    last, _ = play(hands)
    assert (last.exit_code, last.story.steps_lost, last.story.safe_step) == (0, 0, 20)
    assert steps(hands) == list(range(1, 21))
    assert not any(isinstance(command, Rewind) for command in hands.commands)


def test_a_stop_that_loses_a_worker_in_its_save_ends_saved():
    hands = FakeHands(nodes=nodes(4), work=True, tell_at={7: StopAsked(by="user")}, kill_after=[(3.5, 1)])
    last, _ = play(hands)
    assert (last.exit_code, last.story.safe_step) == (0, last.story.committed)
