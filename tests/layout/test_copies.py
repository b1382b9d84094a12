"""Who keeps a copy of whose state."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.config.schema import ModelConfig
from raymega.layout.copies import CopyRoute, Home, Keeping, keepers
from raymega.layout.param_layout import param_specs
from raymega.mesh import Mesh
from raymega.plan.plan import Plan, straight_routes

MODEL = ModelConfig(hidden_size=96, num_layers=8, num_attention_heads=12, head_size=8, ffn_size=160, vocab_size=97)
SPECS = param_specs(MODEL, seq_len=24)
ZONE, MARKET = "ray.io/availability-zone", "ray.io/market-type"


def plan_of(*, dp: int, pp: int, tp: int = 1) -> Plan:
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    layers = tuple((8 * stage // pp, 8 * (stage + 1) // pp) for stage in range(pp))
    return Plan(
        mesh=mesh,
        workers=tuple(f"w{rank}" for rank in range(mesh.size)),
        layers=layers,
        routes=straight_routes(num_microbatches=4, mesh=mesh),
        microbatch_size=2,
    )


def keeping(plan: Plan, nodes: str, *, tolerate: int = 1, labels: dict[str, dict[str, str]] | None = None) -> Keeping:
    """`nodes`: a letter for each worker of the plan."""
    homes = {w: Home(node=n, labels=(labels or {}).get(n, {})) for w, n in zip(plan.workers, nodes, strict=True)}
    return keepers(plan, specs=SPECS, homes=homes, tolerate=tolerate)


def routes(found: Keeping) -> list[tuple[str, str]]:
    return [(route.owner, route.holder) for route in found.routes]


def test_a_pipeline_without_replicas_is_copied_to_the_other_node():
    found = keeping(plan_of(dp=1, pp=2), "ab")
    assert routes(found) == [("w0", "w1"), ("w1", "w0")]
    assert found.reason == "2 of 2 shards of a stage are copied, to outlive the loss of 1 node"


def test_replicas_on_enough_nodes_need_no_copy():
    assert routes(keeping(plan_of(dp=2, pp=2), "aabb")) == []
    assert len(routes(keeping(plan_of(dp=2, pp=2), "aabb", tolerate=2))) == 0
    assert len(routes(keeping(plan_of(dp=2, pp=2), "aabc", tolerate=2))) == 2


def test_replicas_on_one_node_are_copied_to_another():
    found = keeping(plan_of(dp=2, pp=2), "abab")  # both replicas of stage 0 on a, of stage 1 on b
    assert [(owner, holder in ("w1", "w3")) for owner, holder in routes(found)] == [("w0", True), ("w1", False)]


def test_the_last_holder_after_a_loss_is_copied():
    whole = plan_of(dp=2, pp=2)
    lost = replace(whole, lost=frozenset({(1, 1)}), routes=((0, 0), (1, 0), (0, 0), (1, 0)))
    assert routes(keeping(lost, "aabb")) == [("w1", "w2")]


def test_each_shard_of_a_team_is_copied():
    found = keeping(plan_of(dp=1, pp=2, tp=2), "aabb")
    assert [owner for owner, _ in routes(found)] == ["w0", "w1", "w2", "w3"]
    assert {holder for owner, holder in routes(found) if owner in ("w0", "w1")} == {"w2", "w3"}


def test_another_zone_is_better_than_another_node_and_a_node_that_stays_is_best():
    zones = {"a": {ZONE: "z0"}, "b": {ZONE: "z0"}, "c": {ZONE: "z1"}}
    assert ("w0", "w2") in routes(keeping(plan_of(dp=1, pp=3), "abc", labels=zones))
    markets = {"a": {MARKET: "spot"}, "b": {MARKET: "spot"}, "c": {MARKET: "on-demand"}}
    assert ("w0", "w2") in routes(keeping(plan_of(dp=1, pp=3), "abc", labels=markets))
    mixed = {"a": {ZONE: "z0"}, "b": {ZONE: "z0"}, "c": {ZONE: "z1", MARKET: "spot"}}
    assert ("w0", "w1") in routes(keeping(plan_of(dp=1, pp=3), "abc", labels=mixed))


def test_on_the_only_node_another_process_keeps_it_and_the_reason_says_so():
    found = keeping(plan_of(dp=1, pp=2), "aa")
    assert routes(found) == [("w0", "w1"), ("w1", "w0")]
    assert "2 of the copies lie on their owner's node" in found.reason
    assert routes(keeping(plan_of(dp=2, pp=1), "aa")) == []


def test_where_nodes_are_too_few_the_reason_says_so():
    found = keeping(plan_of(dp=1, pp=2), "ab", tolerate=2)
    assert len(found.routes) == 2
    assert found.reason.endswith("2 copies have no place: there are too few nodes")
    assert routes(keeping(plan_of(dp=1, pp=1), "a")) == []


@settings(max_examples=60, deadline=None)
@given(
    mesh=st.sampled_from([(1, 2, 1), (1, 4, 1), (2, 2, 1), (1, 2, 2), (2, 2, 2), (3, 2, 1)]),
    nodes=st.lists(st.sampled_from("abcde"), min_size=8, max_size=8),
    tolerate=st.integers(1, 3),
)
def test_whatever_nodes_go_every_box_is_left_somewhere(mesh: tuple[int, int, int], nodes: list[str], tolerate: int):
    plan = plan_of(dp=mesh[0], pp=mesh[1], tp=mesh[2])
    here = dict(zip(plan.workers, nodes, strict=False))
    found = keeping(plan, "".join(here.values()), tolerate=tolerate)
    for stage in range(plan.mesh.pp):
        for shard in range(plan.mesh.tp):
            ring = [plan.workers[rank] for rank in plan.ring(stage=stage, shard=shard)]
            holders = [*ring, *(route.holder for route in found.routes if route.owner in ring)]
            num_nodes = len({here[worker] for worker in holders})
            assert num_nodes >= min(tolerate + 1, len(set(here.values())))


def test_bytes_are_spread_evenly():
    found = keeping(plan_of(dp=1, pp=8), "abcdefgh")
    assert Counter(route.holder for route in found.routes).most_common(1)[0][1] == 1
    assert CopyRoute(owner="w0", holder="w0") not in found.routes
    assert max(found.elements.values()) <= 2 * min(found.elements.values())


@pytest.mark.parametrize("tolerate", [0, 1])
def test_nothing_to_outlive_needs_no_copy(tolerate: int):
    assert (keeping(plan_of(dp=1, pp=2), "ab", tolerate=tolerate).routes == ()) == (tolerate == 0)
