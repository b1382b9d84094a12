"""A kill at every point of a step, in every phase, of every worker: the step is finished as if nobody had died.

Points are the beginnings of all actions and phases, and of all operations of the reduction and the decision.
"""

from collections.abc import Iterator

import pytest

from tests.worker.killing import KillWorld, kill_world

LAYOUTS = [(2, 1, 2), (2, 2, 1), (3, 1, 2), (2, 1, 3)]


@pytest.fixture(scope="module", params=LAYOUTS, ids=str)
def world(request) -> Iterator[KillWorld]:
    with kill_world(request.param) as made:
        made.look()
        yield made


@pytest.mark.parametrize("rank", range(6))
def test_a_kill_at_any_point_costs_what_died_and_nothing_else(world, rank):
    if rank >= world.plan.mesh.size:
        pytest.skip("the mesh has no such rank")
    victim = world.plan.workers[rank]
    assert {"reduce", "decide", "apply"} < set(world.points[victim])
    for point in (point for point in world.points[victim] if not point.startswith("compute ")):
        case = world.kill(victim, at=point)
        try:
            world.check(case)
        except AssertionError as error:
            raise AssertionError(f"{victim} was killed at {point}: {case.recovered.reason}") from error
