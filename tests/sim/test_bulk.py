from dataclasses import replace

import pytest

from raymega.mesh import Mesh
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.repair import StagesLost
from raymega.plan.plan import Plan
from raymega.plan.repairs import PlanRepair, repair_plan
from raymega.sim.bulk import bulk_units, repair_in_bulk
from raymega.sim.node_trace import failing
from raymega.sim.simulate import simulate
from raymega.sim.telling import work_of
from tests.plan.plans import make_plan
from tests.sim.scenarios import config, scenario


def survivors(plan: Plan, *, without: frozenset[str]) -> dict[str, TeamReport]:
    return {worker: work for worker, work in work_of(plan, {}).items() if worker not in without}


def test_the_work_of_a_lost_team_is_spread_over_its_peers_as_in_a_repair() -> None:
    plan = make_plan(dp=3, pp=2, num_microbatches=12)
    reports = survivors(plan, without=frozenset({plan.workers[2]}))
    counted, ordered = (repair(plan, reports=reports) for repair in (repair_in_bulk, repair_plan))
    assert isinstance(counted, PlanRepair)
    assert isinstance(ordered, PlanRepair)
    assert counted.alive == ordered.alive
    assert counted.plan.lost == ordered.plan.lost
    assert counted.plan.busiest == ordered.plan.busiest == (6, 4)


def test_a_stage_without_a_team_is_lost_in_bulk_too() -> None:
    plan = make_plan(dp=2, pp=2, num_microbatches=4)
    gone = frozenset(plan.workers[plan.team(replica, 1)[0]] for replica in (0, 1))
    found = repair_in_bulk(plan, reports=survivors(plan, without=gone))
    assert isinstance(found, StagesLost)
    assert found.stages == (1,)


@pytest.mark.parametrize(("gone", "repairs"), [((1, 3), True), ((1, 2), False)])
def test_pieces_of_the_optimizer_that_nobody_holds_are_lost_in_bulk_too(gone: tuple[int, int], repairs: bool) -> None:
    plan = replace(make_plan(dp=4, pp=1, num_microbatches=8), shard_optimizer="mirrored")
    reports = survivors(plan, without=frozenset(plan.workers[replica] for replica in gone))
    counted, ordered = (repair(plan, reports=reports) for repair in (repair_in_bulk, repair_plan))
    assert isinstance(counted, PlanRepair) is repairs
    if isinstance(counted, PlanRepair) and isinstance(ordered, PlanRepair):
        assert counted.plan.lost_since == ordered.plan.lost_since == {(replica, 0) for replica in gone}
    else:
        assert counted == ordered


def test_a_step_takes_as_long_as_its_busiest_stage() -> None:
    plan = make_plan(dp=4, pp=1, num_microbatches=12)
    assert bulk_units(plan, microbatches=1200) == 3 * 300 * plan.num_layers


@pytest.mark.parametrize(("dp", "pp", "seed"), [(4, 3, 1), (8, 2, 2)])
def test_goodput_in_bulk_is_that_of_the_clock_of_all_actions(dp: int, pp: int, seed: int) -> None:
    trace = failing(nodes=dp * pp + 1, mtbf_s=90, duration_s=900, back_after_s=80, seed=seed)
    asked = config(dp=dp, pp=pp, training__batch_size=96, training__micro_batch_size=1, checkpoint__every_steps=20)
    timed = scenario(asked, trace=trace, full_step_s=4.0)
    clock, bulk = simulate(timed), simulate(replace(timed, most_passes=0))
    assert bulk.seen.goodput.share == pytest.approx(clock.seen.goodput.share, abs=0.005)
    assert bulk.seen.steps == pytest.approx(clock.seen.steps, rel=0.04)


def test_the_stages_that_the_planner_chose_are_those_that_are_counted() -> None:
    asked = config(dp=2, pp=1, parallelism__pipeline_model_parallel_size="auto")
    trace = failing(nodes=6, mtbf_s=60, duration_s=400, back_after_s=50, seed=3)
    shared = scenario(asked, trace=trace, full_step_s=4.0)
    assert simulate(shared).largest_mesh == Mesh(dp=2, pp=3, tp=1)
    some, none, every = (simulate(replace(shared, most_passes=most)).seen for most in (2 * 24, 3 * 24, 0))
    assert some.goodput == every.goodput != none.goodput, "of 24 micro-batches on three stages"
