"""What hangs on more than the kind of state and event: deadlines, who is avoided, what a late word changes."""

from dataclasses import replace

import pytest

from raymega.control.commands import AssignPlan, Evaluate, FeedFrom, Grant, Rewind, StartWorkers, StopWorkers, WriteStep
from raymega.control.events import WorkerBorn
from raymega.control.states import Checkpoint, Finished, Restoring, Saving, Seat, Settling
from raymega.control.transitions import decide
from tests.control.examples import (
    CKPT,
    DONE,
    FULL,
    IN,
    LAST,
    NEWER,
    PLAN,
    STORY,
    TICK,
    TRAINING,
    G,
    leavers,
    left,
    lost,
    step,
)
from tests.control.fake_hands import brain


def test_an_evaluation_is_ordered_with_the_leave_that_reaches_it():
    decision = decide(brain(eval_every=4), TRAINING, step(10), 100.0)
    assert Evaluate(generation=G, after_step=12) in decision.commands
    assert Grant(generation=G, until=12, save_at=()) in decision.commands


def test_after_the_back_off_the_next_generation_is_made():
    decision = decide(brain(), IN["waiting"], TICK, 201.0)
    assert [type(command) for command in decision.commands] == [AssignPlan, FeedFrom]


def test_a_generation_that_is_not_ready_in_time_is_broken():
    decision = decide(brain(), IN["starting"], TICK, 99.0 + 31.0)
    assert isinstance(decision.state, Settling)
    assert "was not ready after 31 s" in decision.reason


def test_members_of_a_broken_generation_that_say_nothing_count_as_lost():
    decision = decide(brain(), IN["settling"], TICK, 121.0)
    assert isinstance(decision.state, Restoring)
    assert "w2: said nothing for 22.0 s" in decision.reason
    assert StopWorkers(workers=("w2", "w3")) in decision.commands


def test_a_checkpoint_that_is_being_published_is_waited_for_before_going_back():
    publishing = replace(
        IN["settling"],
        saves=(replace(FULL, publishing=True),),
        left=leavers("w0", "w1", "w2"),
    )
    assert decide(brain(), publishing, TICK, 100.0).state == publishing
    decision = decide(brain(), publishing, NEWER, 100.0)
    assert Rewind(step=9) not in decision.commands, "nothing is lost"
    assert next(c for c in decision.commands if isinstance(c, AssignPlan)).checkpoint.step == 9


def test_a_checkpoint_of_steps_that_are_rewound_is_not_taken_up():
    decision = decide(brain(), IN["training"], replace(NEWER, step=12), 100.0)
    assert decision.state.story.checkpoint == CKPT


def test_a_save_that_takes_too_long_is_given_up_and_names_who_is_late():
    slow = replace(TRAINING, saves=(FULL,))
    decision = decide(brain(), slow, TICK, 99.0 + 61.0)
    assert "not complete after 61 s, waiting for w3" in decision.reason
    assert decision.state.saves == ()


def test_a_node_that_is_known_to_be_gone_gets_no_fresh_worker():
    broken = decide(brain(), IN["settling"], lost("w2", node_gone=True), 100.0)
    started = [seat.node for c in broken.commands if isinstance(c, StartWorkers) for seat in c.seats]
    assert isinstance(broken.state, Restoring)
    assert (started, broken.state.plan.mesh.dp) == ([], 1)


def test_a_node_on_which_a_fresh_worker_did_not_come_to_life_is_avoided():
    decision = decide(brain(), IN["restoring"], lost("w3"), 100.0)
    assert decision.state.story.avoided == {"n1"}
    decision = decide(brain(), IN["restoring"], replace(lost("w0"), node="n0"), 100.0)
    assert decision.state.story.avoided == frozenset()


def test_a_loss_while_the_last_manifest_is_written_does_not_matter():
    saving = IN["saving"]
    publishing = replace(saving.training, saves=(replace(LAST, saved=frozenset(PLAN.workers), publishing=True),))
    decision = decide(brain(), replace(saving, training=publishing), lost("w0"), 100.0)
    assert (type(decision.state), decision.commands) == (Saving, ())


def test_a_newer_checkpoint_is_progress():
    tried = replace(TRAINING, story=replace(STORY, recoveries=2))
    assert decide(brain(), tried, NEWER, 100.0).state.story.recoveries == 0
    assert decide(brain(), tried, replace(NEWER, step=4), 100.0).state.story.recoveries == 2


@pytest.mark.parametrize("event", [lost("w0"), left("w0", 20)])
def test_after_the_last_step_is_saved_a_loss_ends_the_run_with_0_and_without_its_validation(event):
    training = decide(brain(eval_every=10), replace(TRAINING, story=replace(DONE, committed=19)), step(20), 100.0).state
    saved = replace(training.story, checkpoint=Checkpoint(step=20, uri="mem://20"))
    saving = Saving(training=replace(training.training, story=saved), stop=None, since=100.0)
    decision = decide(brain(eval_every=10), saving, event, 101.0)
    assert decision.state.exit_code == 0
    assert isinstance(decision.commands[0], WriteStep), "the step's record is written all the same"


def test_a_break_after_the_last_step_costs_no_step_and_the_state_is_saved_again():
    settling = replace(IN["settling"], story=DONE, lost=(), left=leavers(*PLAN.workers[:3], committed=20))
    decision = decide(brain(), settling, left("w3", 20), 100.0)
    assert isinstance(decision.state, Restoring)
    assert (decision.state.story.committed, decision.state.saves_only) == (20, True)


def test_a_break_whose_last_manifest_is_published_meanwhile_ends_the_run_with_0():
    left_all = leavers(*PLAN.workers, committed=20)
    publishing = replace(IN["settling"], story=DONE, lost=(), left=left_all, saves=(replace(LAST, publishing=True),))
    decision = decide(brain(), publishing, replace(NEWER, step=20), 100.0)
    assert (type(decision.state), decision.state.exit_code) == (Finished, 0)


@pytest.mark.parametrize("name", ["starting", "training", "stopping", "saving", "settling"])
def test_the_loss_of_a_spare_changes_nothing(name):
    spare = Seat(worker="w8", node="n1", device=7)
    state = IN[name]
    crowded = (
        replace(state, seats=(*state.seats, spare))
        if name in ("starting", "training", "settling")
        else replace(state, training=replace(state.training, seats=(*state.seats, spare)))
    )
    decision = decide(brain(), crowded, lost("w8"), 100.0)
    assert (decision.commands, type(decision.state)) == ((StopWorkers(workers=("w8",)),), type(state))
    assert decision.state.seats == state.seats


def test_overflows_that_a_loss_scale_answers_do_not_end_the_run_and_one_at_its_floor_does():
    state = TRAINING
    for number in range(10, 16):  # far more than may be not finite in a row
        bad = replace(step(number), skipped=True, overflow="scaled", loss_scale=2.0, reason="of layers.1")
        state = decide(brain(max_nonfinite_steps=2), state, bad, 100.0).state
    assert state.story.skipped_in_row == 0
    last = replace(step(16), skipped=True, overflow="final", loss_scale=1.0, reason="a gradient of layers.1 is inf")
    decision = decide(brain(), state, last, 100.0)
    assert "step 16 was skipped, since a gradient of layers.1 is inf" in decision.reason
    assert "Train in bf16" in decision.reason
    assert getattr(decision.state, "exit_code", 6) == 6


@pytest.mark.parametrize("state", ["training", "moving", "stopping"])
def test_workers_that_are_lost_at_one_moment_are_lost_as_one_after_the_other(state):
    at_once = decide(brain(), IN[state], replace(lost("w2"), also=(lost("w3"), lost("w77"))), 100.0).state
    first = decide(brain(), IN[state], lost("w2"), 100.0).state
    assert at_once == decide(brain(), first, lost("w3"), 100.0).state


def test_processes_that_are_up_at_one_moment_are_known_as_one_after_the_other():
    outlook = STORY.outlook.with_started(("w4", "w5"), 92.0)
    training = replace(TRAINING, story=replace(STORY, outlook=outlook))
    at_once = decide(brain(), training, WorkerBorn(worker="w4", also=("w5",)), 100.0).state
    first = decide(brain(), training, WorkerBorn(worker="w4"), 100.0).state
    assert at_once == decide(brain(), first, WorkerBorn(worker="w5"), 100.0).state
