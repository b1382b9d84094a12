"""Whom the story kills: a worker without whom the others can finish the step."""

from dataclasses import replace

from tests.plan.plans import make_plan
from workloads.story.__main__ import rank_with_a_twin


def test_the_one_who_dies_has_a_twin_at_its_stage():
    plan = replace(make_plan(dp=2, pp=2), lost=frozenset({(1, 0)}), routes=((0, 0), (0, 1), (0, 0), (0, 1)))
    (place,) = [place for place in plan.teams if rank_with_a_twin(plan) in plan.team(*place)]
    assert [stage for _, stage in plan.teams].count(place[1]) == 2
