"""Every second of a worker is in one category, and a step's count as what they were only if it commits."""

import pytest

from raymega.pipeline.actions import Action, Kind
from raymega.worker.time_sheet import Spent, TimeSheet, kept_share


class Played:
    """A sheet on a clock that is told how long things take."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sheet = TimeSheet(clock=lambda: self.now)

    def spend(self, **seconds: float) -> None:
        for phase, spent_s in seconds.items():
            self.sheet.enter(phase.replace("_", "-"))
            self.now += spent_s

    def settled(self) -> dict[str, float]:
        spent = self.sheet.spent
        assert total(spent) == pytest.approx(self.now - 100.0)
        return {name: seconds for name, seconds in spent.seconds.items() if seconds}


def total(spent: Spent) -> float:
    return sum(spent.seconds.values()) + sum(spent.in_hand.values())


def begun(*, generation: int = 1_000_001, born_s: float = 3.0) -> Played:
    played = Played()
    played.now += born_s
    played.sheet.begin(generation, is_moved=False)
    return played


def test_a_step_that_commits_counts_as_what_it_was_spent_on():
    played = begun()
    played.spend(building=1.0, loading=2.0, idle=1.0, waiting_batch=0.5, compute=4.0, reduce=1.0, decide=0.5, apply=1.0)
    assert played.settled() == {"start": 7.0}, "until it commits, the step is in hand"
    played.sheet.commit(1, wait_s=1.5)
    played.now += 0.25
    played.spend(evaluate=2.0, idle=3.0)
    step = {"data": 0.5, "useful": 3.5, "bubble": 1.5, "exchange": 1.5}
    assert played.settled() == {"start": 7.0, **step, "checkpoint": 0.25, "validation": 2.0, "idle": 3.0}


@pytest.mark.parametrize("share", [0.0, 0.75, 1.0])
def test_of_a_step_that_broke_counts_what_its_repair_keeps(share: float):
    played = begun(born_s=0.0)
    played.spend(compute=4.0)
    played.sheet.leave(done_at=103.0, wait_s=1.0)
    assert played.settled() == {"replay": 3.0, "detect": 1.0}
    played.now += 0.5
    played.sheet.begin(1_000_002, is_moved=False)
    played.spend(building=0.5, compute=0.0)
    played.sheet.keep(share)
    played.spend(compute=2.0)
    played.sheet.commit(1)
    found = played.settled()
    assert found.pop("replay", 0.0) == 3.0 * (1 - share)
    assert found == {k: v for k, v in {"useful": 2 + 2 * share, "bubble": share, "detect": 1, "repair": 1}.items() if v}


def test_a_step_that_others_had_committed_counts_once_it_is_applied_late():
    played = begun(born_s=0.0)
    played.spend(compute=1.0, decide=0.5)
    played.sheet.leave(done_at=101.0)
    played.sheet.begin(1_000_002, is_moved=False)
    played.spend(building=1.0)
    played.sheet.settle(1)
    assert played.settled() == {"useful": 1.0, "detect": 0.5, "repair": 1.0}


def test_steps_that_are_done_again_are_replay_and_a_move_is_one():
    played = begun(born_s=0.0)
    for step, again in ((1, False), (2, False), (2, True), (3, False)):
        if again:
            played.sheet.leave()
            played.sheet.begin(1_000_002, is_moved=True)
            played.spend(building=1.0, moving=2.0, idle=1.0)
        played.spend(compute=1.0)
        played.sheet.commit(step)
    assert played.settled() == {"useful": 3.0, "replay": 1.0, "move": 4.0}


def test_a_standby_has_been_idle_until_it_is_called():
    played = begun(generation=1_000_004, born_s=50.0)
    played.spend(building=1.0)
    assert played.settled() == {"idle": 50.0, "start": 1.0}


def test_what_goes_on_of_a_step_is_a_share_of_its_actions():
    done = [Action(0, Kind.F, m) for m in range(4)]
    assert kept_share(done, frozenset(done[:3])) == 0.75
    assert kept_share((), frozenset()) == 0.0
