"""A record that is due a validation loss gets it, whatever breaks in the meantime, and never twice."""

from dataclasses import replace

import pytest

from raymega.control.commands import AssignPlan, Evaluate, WriteStep
from raymega.control.decision import Decision
from raymega.control.events import Event
from raymega.control.states import Checkpoint, Restoring, Settling, State, Training
from raymega.control.transitions import decide
from tests.control.examples import ERROR as IN_ERROR
from tests.control.examples import IN, LOSS, PLAN, STORY, TRAINING, G, lost, step
from tests.control.fake_hands import brain
from tests.control.test_repairing import promise

MIND = brain(eval_every=10)
OTHERS = tuple(worker for worker in PLAN.workers if worker != "w0")


def after(*events: Event, state: State = TRAINING) -> tuple[State, list[Decision]]:
    """The state, and every decision on the way there."""
    told: list[Decision] = []
    for event in events:
        told.append(decide(MIND, state, event, 100.0))
        state = told[-1].state
    return state, told


def written(told: list[Decision]) -> list[tuple[int, float | None]]:
    commands = [command for decision in told for command in decision.commands]
    return [(c.record.step, c.record.val_loss) for c in commands if isinstance(c, WriteStep)]


def test_a_loss_that_survivors_tell_while_the_generation_is_broken_is_written():
    _, told = after(step(10), lost("w0"), LOSS, *(promise(worker, committed=10) for worker in OTHERS))
    assert written(told) == [(10, 5.0)]
    (assign,) = [command for command in told[-1].commands if isinstance(command, AssignPlan)]
    assert not assign.evaluate


def test_a_commit_and_a_loss_that_are_heard_of_only_then_are_one_record():
    state, told = after(lost("w0"), step(10), LOSS)
    assert (type(state), written(told)) == (Settling, [(10, 5.0)])


def test_a_loss_that_nobody_tells_is_taken_again_before_the_next_step():
    state, told = after(step(10), lost("w0"), *(promise(worker, committed=10) for worker in OTHERS))
    assert (type(state), written(told)) == (Restoring, [])
    (assign,) = [command for command in told[-1].commands if isinstance(command, AssignPlan)]
    assert (assign.step, assign.evaluate, assign.keep_state) == (10, True, True)
    assert Evaluate(generation=assign.generation, after_step=10) in told[-1].commands


def test_what_is_taken_again_is_written_once_and_holds_up_no_commit():
    broken, _ = after(step(10), lost("w0"), *(promise(worker, committed=10) for worker in OTHERS))
    number = broken.story.generation
    ready = replace(IN["training"], story=broken.story, granted=12, plan=broken.plan)
    loss, commit = replace(LOSS, generation=number, loss=4.0), replace(step(11), generation=number)
    _, told = after(loss, replace(loss, loss=3.0), commit, state=ready)
    assert written(told) == [(10, 4.0), (11, None)]
    _, told = after(commit, loss, state=ready)
    assert written(told) == [(10, None), (11, None)], "in order, and nothing waits"


def test_a_record_of_a_step_that_is_done_again_is_dropped():
    held, _ = after(step(10))
    state, told = after(*(lost(worker) for worker in PLAN.workers), state=held)
    assert (written(told), state.story.unwritten, state.story.committed) == ([], None, 5)


@pytest.mark.parametrize("saved", [10, 5])
def test_a_checkpoint_of_the_very_step_is_evaluated_where_it_is_loaded(saved):
    at_ten = Checkpoint(step=saved, uri=f"mem://{saved}", tokens_total=8000)
    held, _ = after(step(10))
    held = replace(held, story=replace(held.story, checkpoint=at_ten))
    _, told = after(*(lost(worker) for worker in PLAN.workers), state=held)
    (assign,) = [command for command in told[-1].commands if isinstance(command, AssignPlan)]
    assert (assign.step, assign.evaluate) == (saved, saved == 10)


def test_a_run_that_ends_writes_what_it_held():
    held, _ = after(step(10))
    for state in (held, after(lost("w0"), state=held)[0]):
        _, told = after(replace(IN_ERROR, worker="w1"), state=state)
        assert written(told) == [(10, None)]


def test_a_loss_of_the_generation_before_means_nothing():
    state = Training(story=replace(STORY, generation=G + 1), seats=IN["training"].seats, plan=PLAN, granted=10)
    _, told = after(LOSS, state=state)
    assert told[-1] == Decision(state=state)
