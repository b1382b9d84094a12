"""A device that runs out of memory costs no step: the batch is cut finer, or the run ends and says what to do."""

import pytest

from raymega.control.commands import AssignPlan, Rewind
from raymega.control.events import ResizeAsked
from tests.control import test_changing_plans as changing
from tests.control.fake_hands import FakeHands, nodes
from tests.control.test_whole_runs import play, steps


def sizes(hands: FakeHands) -> list[tuple[int, int, bool]]:
    """Of each assignment: samples in a micro-batch, micro-batches, and whether the state is kept."""
    plans = [(command.plan, command.keep_state) for command in hands.commands if isinstance(command, AssignPlan)]
    return [(plan.microbatch_size, plan.num_microbatches, keeps) for plan, keeps in plans]


@pytest.mark.parametrize("rules", [{}, {"repairs": False}], ids=["logged", "unlogged"])
@pytest.mark.parametrize("work", [True, False], ids=["told", "untold"])
def test_the_step_begins_anew_in_half_the_micro_batch_and_no_state_moves(work, rules):
    hands = FakeHands(nodes=nodes(4), work=work, fits={7: 1})
    last, story = play(hands, **rules)
    assert (last.exit_code, last.story.steps_lost, last.story.recoveries) == (0, 0, 0)
    assert steps(hands) == list(range(1, 21))
    assert sizes(hands) == [(2, 4, False), (1, 8, True)]
    assert not any(isinstance(command, Rewind) for command in hands.commands)
    told = next(turn.decision.reason for turn in story.turns if "in the place of" in turn.decision.reason)
    assert "w0 ran out of memory in compute (2 GB): micro-batches of 1 in the place of 2 from step 7 on" in told
    assert "Set training.micro_batch_size to 1" in told


def test_one_sample_that_does_not_fit_ends_the_run_with_advice():
    hands = FakeHands(nodes=nodes(4), work=True, fits={9: 0})
    last, _ = play(hands)
    assert (last.exit_code, hands.finish.resume_step) == (4, 5)
    assert sizes(hands)[-1] == (1, 8, True), "the smallest is tried first"
    assert "with 1 sample a micro-batch, and there is nothing smaller. Set parallelism.recompute to full" in last.reason
    assert "it can be resumed from the checkpoint of step 5" in last.reason


def test_cuts_do_not_count_as_failed_recoveries():
    hands = FakeHands(nodes=nodes(4), work=True, fits={7: 1}, break_once={7})
    last, _ = play(hands, max_restarts=1)
    assert (last.exit_code, last.story.steps_lost) == (0, 0)


def test_a_loss_at_the_same_time_is_survived_in_smaller_parts():
    hands = FakeHands(nodes=nodes(4), work=True, fits={7: 1}, kill_once={9: 3})
    last, _ = play(hands)
    assert (last.exit_code, last.story.steps_lost, steps(hands)) == (0, 0, list(range(1, 21)))
    assert sizes(hands)[1:] == [(1, 8, True), (1, 8, True)], "and the repair after it is of these too"


def test_what_is_planned_later_keeps_to_the_size_that_fits():
    hands = FakeHands(nodes=nodes(4), work=True, fits={7: 1})
    hands.tell_at[10] = ResizeAsked(request=1, devices=2)
    last, _ = changing.play(hands)
    assert last.exit_code == 0
    assert (hands.metrics[-1].mesh, sizes(hands)[-1]) == ("dp=1 tp=1 pp=2", (1, 8, False))


def test_the_finer_plan_is_not_changed_again_where_nothing_else_is_due():
    hands = FakeHands(nodes=nodes(4), work=True, fits={7: 1})
    changing.play(hands)
    assert [(size, keeps) for size, _, keeps in sizes(hands)] == [(2, False), (1, True)]
