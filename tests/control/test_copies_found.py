"""Which state all can go back to."""

from raymega.control.arbitration import Version
from raymega.control.broken import Leaver
from raymega.control.copies_found import CopiesFound, copies_found
from raymega.layout.copies import Kept
from raymega.mesh import Mesh
from raymega.plan.plan import Plan, straight_routes

MESH = Mesh(dp=1, pp=2, tp=1)
PLAN = Plan(
    mesh=MESH, workers=("w0", "w1"), layers=((0, 2), (2, 4)),
    routes=straight_routes(num_microbatches=4, mesh=MESH), microbatch_size=2,
)  # fmt: skip


def left(step: int, *kept: tuple[str, int, int], worker: str = "w0", decided_in: int = 3) -> Leaver:
    copies = tuple(Kept(owner=owner, step=at, generation=generation) for owner, at, generation in kept)
    return Leaver(worker=worker, committed=step, decided_in=decided_in, kept=copies)


def test_the_live_state_and_the_copy_of_its_step_are_enough():
    found = copies_found(PLAN, left=[left(8, ("w1", 8, 3), ("w1", 7, 3))], newest=8)
    assert found == CopiesFound(version=Version(step=8, generation=3), senders=("w0",), copies={"w1": "w0"})


def test_who_is_further_than_the_copy_has_a_snapshot():
    found = copies_found(PLAN, left=[left(9, ("w1", 8, 3), ("w0", 8, 3), ("w0", 9, 3))], newest=9)
    assert found is not None
    assert found.version == Version(step=8, generation=3)


def test_versions_of_one_step_are_not_mixed():
    assert copies_found(PLAN, left=[left(8, ("w1", 8, 2))], newest=8) is None


def test_a_step_that_nobody_has_heard_of_is_none_to_go_on_from():
    heard_of = left(9, ("w1", 9, 3), ("w1", 8, 3), ("w0", 8, 3), ("w0", 9, 3))
    found = copies_found(PLAN, left=[heard_of], newest=8)
    assert found is not None
    assert found.version.step == 8


def test_without_a_copy_there_is_nothing():
    assert copies_found(PLAN, left=[left(8, ("w0", 8, 3))], newest=8) is None
    assert copies_found(PLAN, left=[left(-1, ("w1", 8, 3))], newest=8) is None


def test_who_has_no_part_in_the_plan_is_not_asked():
    assert copies_found(PLAN, left=[left(8, ("w1", 8, 3), worker="w7")], newest=8) is None


def test_a_replica_that_lives_is_better_than_a_copy():
    plan = Plan(
        mesh=Mesh(dp=2, pp=1, tp=1), workers=("w0", "w1"), layers=((0, 4),), routes=((0,), (1,)), microbatch_size=2
    )
    found = copies_found(plan, left=[left(8, ("w1", 8, 3))], newest=8)
    assert found == CopiesFound(version=Version(step=8, generation=3), senders=("w0",), copies={})
