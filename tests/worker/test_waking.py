"""A team is left alone while all its shards live, and its wait ends all the same."""

import threading
from collections.abc import Collection

import pytest

from raymega.comm.group import GroupSpec
from raymega.worker.waking import Waking

LIMIT_S = 10.0
TEAM = GroupSpec(key="g3/tp/r0s0", members=("w0", "w1"))


class FakeFabric:
    generation, me = 3, "w0"

    def __init__(self) -> None:
        self.aborts: list[tuple[str, ...]] = []
        self.aborted = threading.Semaphore(0)
        self.is_closed = False

    def abort(self, *, spare: Collection[str] = ()) -> None:
        self.aborts.append(tuple(spare))
        self.aborted.release()

    def close(self) -> None:
        self.is_closed = True


def waking(fabric: FakeFabric, *, team: GroupSpec = TEAM, lease_s: float = 60.0) -> Waking:
    made = Waking(lease_s=lease_s)
    made.begin(fabric)
    made.spare(team)
    return made


def is_over(_: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("members", "lost", "spared"),
    [(("w0", "w1"), (), True), (("w0", "w1"), ("w7",), True), (("w0", "w1"), ("w1",), False), (("w0",), (), False)],
)
def test_a_team_is_spared_while_none_of_its_members_is_lost(members, lost, spared):
    fabric = FakeFabric()
    one = waking(fabric, team=GroupSpec(key="g3/tp/r0s0", members=members))
    one.wake(lost=lost, is_current=is_over)
    assert fabric.aborts == [("g3/tp/r0s0",) if spared else ()]
    one.end()


def test_a_team_whose_shard_neither_leaves_nor_is_lost_is_cut_after_a_lease():
    fabric = FakeFabric()
    one = waking(fabric, lease_s=0.01)
    one.wake(lost=(), is_current=is_over)
    assert all(fabric.aborted.acquire(timeout=LIMIT_S) for _ in range(2))
    assert fabric.aborts == [("g3/tp/r0s0",), ()]
    one.end()


def test_a_generation_that_is_current_is_left_alone():
    fabric = FakeFabric()
    waking(fabric).wake(lost=(), is_current=lambda generation: generation == 3)
    assert fabric.aborts == []


def test_who_leaves_breaks_all_groups():
    fabric = FakeFabric()
    one = waking(fabric)
    one.end()
    assert (fabric.aborts, fabric.is_closed) == ([()], True)
