from dataclasses import replace

import pytest

from raymega.control.broken import RepairUnderway
from raymega.control.events import StepCommitted, Tick, WorkerLost
from raymega.control.goodput import CATEGORIES, Goodput
from raymega.control.loop import run
from raymega.control.states import WaitingForNodes, first_state
from tests.control.examples import SEATS, STORY, TRAINING
from tests.control.fake_hands import FakeHands, brain, nodes


class Account:
    def __init__(self) -> None:
        self.goodput = Goodput(t=1000.0)

    def saw(self, turn) -> None:
        self.goodput = self.goodput.after(turn.before, turn.event, turn.t)


def played(**faults) -> tuple[Goodput, FakeHands]:
    account, hands = Account(), FakeHands(nodes=nodes(4), **faults)
    run(first_state(epoch=1), brain=brain(), hands=hands, watchers=[account])
    return account.goodput, hands


@pytest.mark.parametrize("faults", [{}, {"kill_once": {13: 2}}, {"break_once": {7}}])
def test_the_categories_add_up_to_the_whole_wall_clock_of_all_workers(faults):
    goodput, hands = played(**faults)
    assert set(goodput.seconds) == set(CATEGORIES)
    assert goodput.total_s == pytest.approx(4 * (hands.clock - 1000.0))
    assert all(seconds >= 0 for seconds in goodput.seconds.values())


def test_a_step_that_is_done_again_is_replay():
    goodput, _ = played(kill_once={13: 2})
    assert goodput.seconds["replay"] == pytest.approx(4 * 3 * 0.1, abs=0.2), "steps 11 and 12, and 13 which broke"
    assert goodput.seconds["repair"] > 0
    assert goodput.share < played()[0].share


def step(**seconds: float) -> StepCommitted:
    return StepCommitted(
        generation=TRAINING.story.generation, step=10, loss=1.0, grad_norm=1.0, lr=0.1, tokens=1, skipped=False,
        step_s=1.0, t=0.0, seconds=seconds,
    )  # fmt: skip


def test_a_step_is_split_by_what_the_worker_measured_and_the_rest_is_idle():
    event = step(compute=0.5, apply=0.1, wait_peer=0.2, reduce=0.05, decide=0.05, wait_batch=0.04, snapshot=0.01)
    goodput = Goodput(t=0.0).after(TRAINING, event, 1.0)
    per_worker = {name: seconds / 4 for name, seconds in goodput.seconds.items() if seconds}
    expected = {"useful": 0.6, "bubble": 0.2, "exchange": 0.1, "data": 0.04, "checkpoint": 0.01, "idle": 0.05}
    assert per_worker == pytest.approx(expected)
    assert (goodput.share, goodput.last_bubble) == pytest.approx((0.94, 0.2))


def test_a_worker_that_measures_more_than_passed_is_cut_to_what_passed():
    goodput = Goodput(t=0.0).after(TRAINING, step(compute=3.0, wait_peer=1.0), 1.0)
    assert goodput.seconds["useful"] == pytest.approx(4 * 0.75)
    assert goodput.total_s == pytest.approx(4.0)


def test_what_a_repair_keeps_of_a_broken_step_is_no_replay():
    lost = WorkerLost(worker="w1", node="n1", cause="SIGKILL", silent_s=0.1)
    broke = Goodput(t=0.0).after(TRAINING, lost, 0.6)
    assert (broke.seconds["detect"], broke.seconds["replay"]) == pytest.approx((4 * 0.1, 4 * 0.5))
    actions = 2 * len(TRAINING.plan.layers) * TRAINING.plan.num_microbatches
    repair = RepairUnderway(step=10, missing=actions - 6, recomputed=actions // 4, detect_s=0.1, since=0.6)
    mended = broke.after(replace(TRAINING, repair=repair), step(compute=1.0), 1.6)
    kept = 1 - 1 / 4  # a quarter of the step was the lost's, who had come as far as the others
    assert mended.seconds["replay"] == pytest.approx(4 * 0.5 * (1 - kept))
    assert mended.seconds["useful"] == pytest.approx(4 * 1.0 + 4 * 0.5 * kept)
    assert mended.total_s == pytest.approx(4 * 1.6)


@pytest.mark.parametrize("kept_actions", [1, 6, 11])
def test_how_early_a_step_breaks_does_not_change_the_share_of_it_that_is_lost(kept_actions):
    actions = 2 * len(TRAINING.plan.layers) * TRAINING.plan.num_microbatches
    broke = Goodput(t=0.0).after(TRAINING, WorkerLost(worker="w1", node="n1", cause="SIGKILL", silent_s=0.1), 0.6)
    repair = RepairUnderway(step=10, missing=actions - kept_actions, recomputed=4, detect_s=0.1, since=0.6)
    mended = broke.after(replace(TRAINING, repair=repair), step(compute=1.0), 1.6)
    assert mended.seconds["replay"] == pytest.approx(4 * 0.5 * 4 / actions)


def test_of_a_step_of_which_nothing_is_left_all_is_replay():
    actions = 2 * len(TRAINING.plan.layers) * TRAINING.plan.num_microbatches
    broke = Goodput(t=0.0).after(TRAINING, WorkerLost(worker="w1", node="n1", cause="SIGKILL", silent_s=0.1), 0.6)
    repair = RepairUnderway(step=10, missing=actions, recomputed=4, detect_s=0.1, since=0.6)
    mended = broke.after(replace(TRAINING, repair=repair), step(compute=1.0), 1.6)
    assert mended.seconds["replay"] == pytest.approx(4 * 0.5)


def test_the_loss_of_a_spare_breaks_no_step():
    lost = WorkerLost(worker="w9", node="n1", cause="SIGKILL", silent_s=0.1)
    assert Goodput(t=0.0).after(TRAINING, lost, 0.6) == Goodput(t=0.0)


def test_those_who_are_lost_at_one_moment_break_a_step_if_one_of_them_had_a_part():
    spare = WorkerLost(worker="w9", node="n1", cause="SIGKILL", silent_s=0.1)
    member = replace(spare, worker="w1")
    broke = Goodput(t=0.0).after(TRAINING, replace(spare, also=(member,)), 0.6)
    assert broke == Goodput(t=0.0).after(TRAINING, member, 0.6) != Goodput(t=0.0)


def test_before_the_first_node_a_worker_waits_for_ray_where_it_is_not_up():
    waiting = WaitingForNodes(story=replace(STORY, nodes=(), next_worker=0), seats=())
    comes_up, is_up = (Goodput(t=0.0, ray_is_up=up).after(waiting, Tick(), 60.0) for up in (False, True))
    assert (comes_up.seconds["start"], comes_up.without_nodes_s) == (60.0, 0.0)
    assert (is_up.total_s, is_up.without_nodes_s, is_up.t) == (0.0, 60.0, 60.0)


def test_where_there_is_no_node_nobody_has_seconds():
    waiting = WaitingForNodes(story=replace(STORY, nodes=()), seats=())
    none = Goodput(t=0.0).after(waiting, Tick(), 60.0)
    assert (none.total_s, none.without_nodes_s, none.t) == (0.0, 60.0, 60.0)
    left = none.after(replace(waiting, story=replace(STORY, recoveries=1), seats=SEATS), Tick(), 70.0)
    assert (left.seconds["idle"], left.without_nodes_s) == (len(SEATS) * 10.0, 60.0)
