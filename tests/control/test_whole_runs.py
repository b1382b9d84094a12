"""Whole runs in virtual time: what is lost, what is kept, and what the run exits with."""

import pytest

from raymega.control.commands import AssignPlan, Rewind, StartWorkers
from raymega.control.events import Event, NodesChanged, StopAsked, WorkerFailed
from raymega.control.loop import Turn, run
from raymega.control.states import Checkpoint, Failed, Finished, Settling, Training, first_state
from tests.control.fake_hands import FakeHands, brain, moving_brain, nodes


class Story:
    """Keeps every turn."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def saw(self, turn: Turn) -> None:
        self.turns.append(turn)


def play(hands: FakeHands, checkpoint: Checkpoint | None = None, **rules: float) -> tuple[Finished | Failed, Story]:
    story = Story()
    last = run(first_state(epoch=1, checkpoint=checkpoint), brain=brain(**rules), hands=hands, watchers=[story])
    assert hands.finish is not None
    assert hands.finish.exit_code == last.exit_code
    assert not hands.seats, "no worker is left behind"
    return last, story


def steps(hands: FakeHands) -> list[int]:
    return [record.step for record in hands.metrics]


def test_a_quiet_run_commits_every_step_once_and_exits_with_0():
    hands = FakeHands(nodes=nodes(4))
    last, _ = play(hands)
    assert (last.exit_code, steps(hands), last.story.safe_step) == (0, list(range(1, 21)), 20)
    assert hands.metrics[-1].tokens_total == 20 * 800
    assert hands.metrics[3].first_sample == 3 * 8


def test_a_lost_worker_costs_the_steps_since_the_checkpoint_and_no_others():
    hands = FakeHands(nodes=nodes(4), kill_once={13: 2})
    last, story = play(hands)
    assert (last.exit_code, last.story.steps_lost, steps(hands)) == (0, 2, list(range(1, 21)))
    assert Rewind(step=10) in hands.commands
    assert hands.started == ["w0", "w1", "w2", "w3", "w4"], "only the lost worker is replaced"
    assert hands.metrics[-1].tokens_total == 20 * 800
    broken = next(turn for turn in story.turns if isinstance(turn.decision.state, Settling))
    assert "the step ends for everyone" in broken.decision.reason


def test_a_lost_node_gives_a_smaller_mesh_of_the_survivors():
    hands = FakeHands(nodes=nodes(2, 2))
    hands.tell(4.0, NodesChanged(nodes=nodes(2)))
    last, _ = play(hands)
    assert (last.exit_code, hands.metrics[-1].mesh) == (0, "dp=1 tp=1 pp=2")
    assert hands.started == ["w0", "w1", "w2", "w3"]


def test_a_break_without_a_loss_costs_no_step_and_no_process():
    hands = FakeHands(nodes=nodes(4), break_once={8})
    last, _ = play(hands)
    assert (last.exit_code, last.story.steps_lost, len(hands.started)) == (0, 0, 4)
    assert [c.keep_state for c in hands.commands if isinstance(c, AssignPlan)] == [False, True]


def test_a_worker_that_dies_at_the_same_step_each_time_ends_the_run_after_the_allowed_number():
    hands = FakeHands(nodes=nodes(4), kill_at={9: 1})
    last, _ = play(hands)
    assert (last.exit_code, hands.finish.resume_step) == (4, 5)
    assert "3 recoveries brought no new step" in last.reason
    assert sum(isinstance(command, StartWorkers) for command in hands.commands) == 1 + 3
    assert hands.clock - 1000.0 > 0.5 + 1.0, "each attempt waits longer"


def test_progress_between_losses_sets_the_counter_back():
    hands = FakeHands(nodes=nodes(4), kill_once={3: 0, 6: 1, 9: 2, 12: 3, 15: 0})
    last, _ = play(hands, max_restarts=1)
    assert (last.exit_code, steps(hands)) == (0, list(range(1, 21)))


def test_an_error_of_the_users_own_is_not_tried_again():
    hands = FakeHands(nodes=nodes(4))
    error = WorkerFailed(worker="w1", generation=1_000_001, error="ValueError: x", exit_code=1, traceback="Trace")
    hands.tell_at[1] = error
    last, _ = play(hands)
    assert (last.exit_code, last.details, len(hands.started)) == (1, "Trace", 4)


@pytest.mark.parametrize(("by", "code"), [("user", 0), ("interrupt", 130), ("terminate", 75), ("client_gone", 75)])
def test_a_stop_ends_at_a_shared_boundary_with_everything_saved(by, code):
    hands = FakeHands(nodes=nodes(4), tell_at={7: StopAsked(by=by)})
    last, _ = play(hands)
    assert last.exit_code == code
    assert last.story.committed == last.story.safe_step == hands.finish.resume_step
    assert 7 < last.story.committed < 20


def test_a_stop_without_enough_grace_ends_without_the_save_and_says_so():
    hands = FakeHands(nodes=nodes(4), save_s=50.0, tell_at={7: StopAsked(by="terminate", grace_s=5.0)})
    last, _ = play(hands, save_timeout_s=100.0)
    assert (last.exit_code, hands.finish.resume_step) == (143, 0)
    assert "the grace is used up" in last.reason


def test_a_second_interrupt_ends_at_once():
    hands = FakeHands(nodes=nodes(4), save_s=50.0, tell_at={7: StopAsked(by="interrupt")})
    hands.tell(10.0, StopAsked(by="interrupt"))
    last, _ = play(hands)
    assert (last.exit_code, hands.clock - 1000.0 < 11.0) == (130, True)


def test_too_many_skipped_steps_in_a_row_end_the_run_with_6():
    hands = FakeHands(nodes=nodes(4), skipped={3, 7, 8, 9})
    last, _ = play(hands)
    assert (last.exit_code, steps(hands)[-1]) == (6, 9)


def test_a_save_that_fails_at_the_end_ends_with_5():
    hands = FakeHands(nodes=nodes(4), save_fails=True)
    last, _ = play(hands, save_every=0)
    assert (last.exit_code, last.story.committed) == (5, 20)
    assert "w0, w1, w2, w3" in last.reason


def test_fewer_devices_than_the_minimum_end_the_run_resumable():
    hands = FakeHands(nodes=nodes(2, 2))
    hands.tell(3.5, NodesChanged(nodes=nodes(2)))
    last, _ = play(hands, min_devices=3)
    assert last.exit_code == 75
    assert "2 devices are left, elastic.min_devices is 3" in last.reason


def test_a_cluster_that_is_too_small_from_the_start_is_refused_with_4():
    last, _ = play(FakeHands(nodes=nodes(2)), min_devices=3)
    assert (last.exit_code, type(last)) == (4, Failed)


def test_validation_losses_stand_in_the_record_of_their_step():
    hands = FakeHands(nodes=nodes(4))
    play(hands, eval_every=10)
    assert [record.step for record in hands.metrics if record.val_loss is not None] == [10, 20]


def test_a_finished_run_says_so_and_exits_with_0():
    last, _ = play(FakeHands(nodes=nodes(4)), checkpoint=Checkpoint(step=20, uri="mem://20", tokens_total=1))
    assert (last.exit_code, "nothing to do" in last.reason) == (0, True)


def test_no_grant_goes_beyond_the_last_step_or_far_ahead():
    _, story = play(FakeHands(nodes=nodes(4), step_s=0.1))
    training = [turn.decision.state for turn in story.turns if isinstance(turn.decision.state, Training)]
    assert max(state.granted - state.story.committed for state in training) <= 8
    assert max(state.granted for state in training) == 20


class Unlucky(FakeHands):
    """Both holders of a stage die at step 40, and while its steps are done again one worker each at other steps."""

    def _commit(self) -> Event | None:
        assert self.plan is not None
        if self.due[:1] != [self.step + 1]:
            return super()._commit()
        del self.due[0]
        first = [worker for worker in self.plan.living if self.plan.coord_of(worker).stage == 0]
        for worker in first if self.step + 1 == 40 else self.plan.living[-1:]:
            self.kill(worker)
        return None


def test_deaths_that_cost_no_step_end_no_run_that_does_lost_steps_again():
    hands = Unlucky(nodes=nodes(4, 4), work=True, step_s=0.5)
    hands.due = [40, 5, 12, 19, 26, 33]
    last = run(
        first_state(epoch=1), brain=moving_brain(steps=60, save_every=0, max_restarts=3), hands=hands, watchers=[]
    )
    assert (last.exit_code, last.story.committed, last.story.steps_lost) == (0, 60, 39)
