from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.plan.groups import GroupPlan, groups_of
from raymega.plan.plan import Plan
from tests.plan.plans import make_plan


def members(plan: Plan, axis: str, *, tied: bool = True) -> list[str]:
    return [" ".join(g.members) for g in groups_of(plan, generation=7, tied=tied) if g.axis == axis]


def rounds_to_build(groups: tuple[GroupPlan, ...]) -> int:
    """Rounds in which every worker, all at once, builds the next group of its own list; as blocking builds go."""
    left, rounds = list(groups), 0
    while left:
        at = {worker: next(g for g in left if worker in g.members) for g in left for worker in g.members}
        ready = [g for g in left if all(at[worker] is g for worker in g.members)]
        assert ready, "building is stuck"
        left = [g for g in left if g not in ready]
        rounds += 1
    return rounds


def test_groups_of_two_by_two_by_two() -> None:
    plan = make_plan(dp=2, tp=2, pp=2)
    assert members(plan, "tp") == ["w0 w1", "w2 w3", "w4 w5", "w6 w7"]
    assert members(plan, "dp") == ["w0 w4", "w1 w5", "w2 w6", "w3 w7"]
    assert members(plan, "pair") == ["w0 w2", "w1 w3", "w4 w6", "w5 w7"]
    assert members(plan, "tied") == ["w0 w2", "w1 w3", "w4 w6", "w5 w7"]


def test_a_single_worker_needs_no_group() -> None:
    assert groups_of(make_plan(), generation=1, tied=True) == ()


def test_the_tied_group_joins_the_two_ends_only_when_asked() -> None:
    plan = make_plan(pp=4)
    assert members(plan, "tied") == ["w0 w3"]
    assert members(plan, "tied", tied=False) == []


def test_keys_name_generation_axis_and_place() -> None:
    keys = [g.key for g in groups_of(make_plan(dp=2, pp=2), generation=7, tied=True)]
    assert keys[:2] == ["g7/dp/s0t0", "g7/dp/s1t0"]
    assert keys[2:4] == ["g7/pair/r0s0t0-r0s1t0", "g7/pair/r1s0t0-r1s1t0"]
    assert keys[4:] == ["g7/tied/r0t0", "g7/tied/r1t0"]


def test_pairs_follow_the_routes_across_replicas() -> None:
    plan = make_plan(dp=2, pp=2, routes=((0, 1), (1, 1), (0, 1), (0, 0)))
    assert sorted(members(plan, "pair")) == ["w0 w1", "w0 w3", "w2 w3"]


def test_chunks_join_the_last_stage_with_the_first_and_two_stages_only_once() -> None:
    assert sorted(members(make_plan(pp=3, chunks=2), "pair")) == ["w0 w1", "w0 w2", "w1 w2"]
    assert members(make_plan(pp=2, chunks=3), "pair") == ["w0 w1"]


def test_pairs_of_a_long_pipeline_are_built_in_two_rounds() -> None:
    assert rounds_to_build(groups_of(make_plan(pp=16), generation=1, tied=False)) == 2


@settings(max_examples=50, deadline=None)
@given(data=st.data(), dp=st.integers(1, 3), pp=st.integers(1, 4), tp=st.integers(1, 2), chunks=st.integers(1, 2))
def test_building_in_list_order_never_deadlocks_and_keys_are_unique(
    data: st.DataObject, dp: int, pp: int, tp: int, chunks: int
) -> None:
    route = st.tuples(*[st.integers(0, dp - 1)] * pp)
    routes = tuple(data.draw(st.lists(route, min_size=1, max_size=6)))
    groups = groups_of(make_plan(dp=dp, pp=pp, tp=tp, chunks=chunks, routes=routes), generation=1, tied=True)
    assert rounds_to_build(groups) <= len(groups)
    assert len({g.key for g in groups}) == len(groups)
    pairs = [g.members for g in groups if g.axis == "pair"]
    assert len(set(pairs)) == len(pairs)
    assert all(len(set(g.members)) == len(g.members) > 1 for g in groups)
