"""A kill at every point of a step, in every phase, of every worker: the step is finished as if nobody had died.

Points are the beginnings of all actions and phases, and of all operations of the reduction and the decision; and when
a gradient has left, before the action that sent it has ended.
"""

from collections.abc import Iterator
from math import prod

import pytest

from tests.worker.killing import KillWorld, kill_world

LAYOUTS = [(2, 1, 2), (2, 2, 1), (3, 1, 2), (2, 1, 3)]
VICTIMS = [(layout, rank) for layout in LAYOUTS for rank in range(prod(layout))]


@pytest.fixture(scope="module")
def world(request) -> Iterator[KillWorld]:
    with kill_world(request.param) as made:
        made.look()
        yield made


@pytest.mark.parametrize(("world", "rank"), VICTIMS, indirect=["world"], ids=str)
def test_a_kill_at_any_point_costs_what_died_and_nothing_else(world, rank):
    victim = world.plan.workers[rank]
    assert {"reduce", "decide", "apply"} < set(world.points[victim])
    for point in (point for point in world.points[victim] if not point.startswith("compute ")):
        case = world.kill(victim, at=point)
        try:
            world.check(case)
        except AssertionError as error:
            raise AssertionError(f"{victim} was killed at {point}: {case.recovered.reason}") from error
