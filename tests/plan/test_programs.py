from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import ConfigError, RaymegaBug
from raymega.pipeline.actions import show_program, work_of_step
from raymega.plan.programs import check_programs, programs_of, team_programs_of, timeline_of
from tests.plan.plans import make_plan


def test_an_uneven_quota_gives_each_replica_its_own_program() -> None:
    teams = team_programs_of(make_plan(dp=2, pp=2, num_microbatches=3))
    assert {team: show_program(program) for team, program in teams.items()} == {
        "replica 0 stage 0": "0F0 0F2 0B0 0B2",
        "replica 0 stage 1": "1F0 1B0 1F2 1B2",
        "replica 1 stage 0": "0F1 0B1",
        "replica 1 stage 1": "1F1 1B1",
    }


def test_all_shards_of_a_team_run_the_same_program() -> None:
    plan = make_plan(dp=2, pp=2, tp=2)
    programs = programs_of(plan)
    assert len(programs) == plan.mesh.size
    assert programs[0::2] == programs[1::2]


def test_a_micro_batch_follows_its_route() -> None:
    programs = programs_of(make_plan(dp=2, pp=2, routes=((0, 1), (1, 1))))
    assert [show_program(program) for program in programs] == ["0F0 0B0", "", "0F1 0B1", "1F0 1B0 1F1 1B1"]


@given(dp=st.integers(1, 3), pp=st.integers(1, 4), extra=st.integers(0, 7), schedule=st.sampled_from(["1f1b", "gpipe"]))
def test_the_programs_together_are_the_work_of_a_step(dp: int, pp: int, extra: int, schedule: str) -> None:
    plan = make_plan(dp=dp, pp=pp, num_microbatches=dp + extra, schedule=schedule)
    done = [action for program in programs_of(plan) for action in program]
    assert len(done) == len(set(done))
    assert set(done) == work_of_step(num_stages=pp, num_microbatches=dp + extra)


def test_the_bubble_of_a_plan_is_its_schedule_s_and_grows_with_uneven_stages() -> None:
    even = make_plan(dp=2, pp=2, num_microbatches=6)
    assert timeline_of(even).bubble_share() == pytest.approx(1 / 4)
    uneven = replace(even, layers=((0, 3), (3, 4)))
    assert timeline_of(uneven).bubble_share("replica 1 stage 1") > timeline_of(even).bubble_share()
    assert timeline_of(uneven).bubble_share("replica 1 stage 0") < timeline_of(even).bubble_share()


def test_chunks_are_refused_by_a_schedule_that_has_none() -> None:
    with pytest.raises(ConfigError, match="Schedule 1f1b runs one chunk a stage, not 2"):
        programs_of(make_plan(pp=2, chunks=2))


@given(dp=st.integers(1, 3), pp=st.integers(1, 5), extra=st.integers(0, 9), schedule=st.sampled_from(["1f1b", "gpipe"]))
@settings(max_examples=50, deadline=None)
def test_every_plan_with_straight_routes_passes_the_check(dp: int, pp: int, extra: int, schedule: str) -> None:
    check_programs(make_plan(dp=dp, pp=pp, num_microbatches=dp + extra, schedule=schedule))


@given(quotas=st.lists(st.integers(1, 6), min_size=2, max_size=4), pp=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_any_uneven_quota_passes_the_check(quotas: list[int], pp: int) -> None:
    routes = tuple((replica,) * pp for replica, quota in enumerate(quotas) for _ in range(quota))
    check_programs(make_plan(dp=len(quotas), pp=pp, routes=routes))


@given(dp=st.integers(1, 2), pp=st.integers(1, 4), chunks=st.integers(1, 3), extra=st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_every_plan_with_chunks_passes_the_check(dp: int, pp: int, chunks: int, extra: int) -> None:
    check_programs(make_plan(dp=dp, pp=pp, chunks=chunks, num_microbatches=dp + extra, schedule="interleaved"))


def test_a_dead_team_s_micro_batches_may_be_served_by_its_peer() -> None:
    check_programs(make_plan(dp=2, pp=3, routes=((0, 0, 0), (1, 0, 1)) * 4))


def test_routes_that_cross_so_that_teams_wait_in_a_circle_are_caught_by_name() -> None:
    routes = ((1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1))
    circle = "replica 0 stage 1 waits for 0F3 of replica 1 stage 0, and replica 1 stage 0 waits for 1B0 of replica 0"
    with pytest.raises(RaymegaBug, match=circle):
        check_programs(make_plan(dp=2, pp=3, routes=routes))
