"""A sample of every kill of a step, and a short soak, on real processes. `make chaos` runs all of them."""

import random
from collections.abc import Iterator

import pytest

from raymega.config.choices import CHUNKS_OF
from raymega.control.ladder import MARGIN
from raymega.plan.planner import plan_for
from raymega.plan.repairs import step_programs_of
from raymega.plan.uneven import uneven_plan, without_teams, work_of
from workloads.chaos.arena import Call
from workloads.chaos.availability import EVEN, struck
from workloads.chaos.crew import fork_server
from workloads.chaos.kills import LAYOUTS, kill, kill_last, kills_of, last_kills_of, opened, plan_of
from workloads.chaos.returns import come_back
from workloads.chaos.soak import KINDS, added_by_first_stage, soak
from workloads.chaos.toy import Layout, config_of

SAMPLE = 5  # of each layout


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """Workers of all tests are forked from one process, which loads torch once."""
    with fork_server():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_worker_that_kills_itself_anywhere_in_a_step_costs_nothing(layout):
    cases = random.Random(f"{layout}").sample(list(kills_of(layout)), SAMPLE)
    with opened(layout) as arena:
        calm = arena.run()
        for case in cases:
            print(kill(arena, case, calm=calm))
        print(kill_last(arena, random.Random(f"{layout}").choice(list(last_kills_of(layout))), calm=calm))


@pytest.mark.parametrize("layout", [Layout(dp=2, tp=1, pp=2), Layout(dp=4, tp=1, pp=2)], ids=str)
def test_a_mesh_that_lost_anybody_is_slower_so_that_it_is_made_whole(layout):
    config = config_of(layout, steps=1, batch_size=6 * layout.dp, model=EVEN)
    whole = plan_for(config, workers={f"w{number}": "here" for number in range(layout.size)}).plan
    places = [(replica, stage) for replica in range(layout.dp) for stage in range(layout.pp)]
    for lost in places:
        left = [without_teams(whole, [lost]), uneven_plan(whole, kept=[p for p in places if p != lost], more=())]
        assert all(plan is None or work_of(plan) > work_of(whole) / (1 - MARGIN) for plan in left), lost


def test_every_action_phase_and_sum_of_every_worker_is_among_the_kills():
    cases = [case for layout in LAYOUTS for case in kills_of(layout)]
    assert len(set(map(str, cases))) == len(cases) == 208
    assert {case.order.phase for case in cases} >= {"compute", "reduce", "decide", "apply"}


@pytest.mark.parametrize("schedule", CHUNKS_OF)
def test_the_samples_of_a_step_are_found_in_its_calls_under_every_schedule(schedule):
    plan = plan_of(Layout(dp=1, tp=1, pp=2, schedule=schedule))
    calls = [
        Call(generation=1, step=1, worker="w0", action=str(action), first_sample=2 * action.microbatch)
        for action in step_programs_of(plan)[0]
    ]
    assert added_by_first_stage(calls) == set(range(0, 12, 2))
    assert added_by_first_stage(call for call in calls if call.action not in ("0B1", "0W1")) == {0, 4, 6, 8, 10}


@pytest.mark.slow
def test_a_run_under_faults_ends_as_if_there_had_been_none():
    soaked = soak(steps=24, faults=5, seed=3)
    print(soaked)
    assert set(soaked.faults) == set(KINDS)


@pytest.mark.slow
def test_standbys_make_the_mesh_whole_again_before_each_kill_and_no_step_is_lost():
    found = struck(Layout(dp=2, tp=1, pp=2), failures=3, every=1, seed=0, standbys=2, wait_s=0.03)
    print(found)
    assert (len(found.blows), found.lost, found.share) == (3, 0, 1.0)
    assert sum(change.certified for _, change in found.outcome.kept.changes) >= 2


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("victim", ["w0", "w3"])
def test_a_machine_that_stood_still_and_comes_back_is_refused(victim):
    come_back(victim=victim)
