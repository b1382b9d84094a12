from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.cluster import MARKET_LABEL, Cluster, Node
from raymega.plan.placement import place, places_for_teams


def nodes_of(*devices: int, held: int = 0, unit: str = "device") -> Cluster:
    return Cluster(nodes=tuple(Node(id=f"n{i}", devices=d, held=held) for i, d in enumerate(devices)), unit=unit)


def placed(cluster: Cluster, *, dp: int = 1, pp: int = 1, tp: int = 1) -> str:
    return " ".join(place(Mesh(dp=dp, pp=pp, tp=tp), cluster=cluster))


def test_a_replica_stays_together_and_replicas_lie_apart() -> None:
    assert placed(nodes_of(4, 4), dp=2, pp=2, tp=2) == "n0 n0 n0 n0 n1 n1 n1 n1"


def test_replicas_of_a_stage_lie_on_different_nodes_where_there_is_room() -> None:
    assert placed(nodes_of(4, 4), dp=2) == "n0 n1"
    assert placed(nodes_of(3, 1), dp=2, pp=2) == "n0 n0 n1 n0"


def test_replicas_of_a_stage_lie_in_different_zones_before_they_share_one() -> None:
    zones = ("a", "a", "b", "b")
    nodes = (
        Node(id=f"n{i}", devices=2, labels={"ray.io/availability-zone": zone, MARKET_LABEL: "spot"})
        for i, zone in enumerate(zones)
    )
    assert placed(Cluster(nodes=tuple(nodes)), dp=2, pp=2) == "n0 n0 n2 n2"


def test_neighbouring_stages_share_a_node_even_where_another_is_empty() -> None:
    assert placed(nodes_of(4, 1), dp=2, pp=2) == "n0 n0 n0 n0"


def test_replicas_on_one_node_stand_side_by_side() -> None:
    assert placed(nodes_of(2, 2), dp=4) == "n0 n0 n1 n1"


def test_a_team_does_not_leave_its_node_even_if_devices_are_left_over() -> None:
    assert placed(nodes_of(3, 3), pp=2, tp=2) == "n0 n0 n1 n1"


def test_a_team_larger_than_any_node_is_laid_over_several() -> None:
    assert placed(nodes_of(1, 1, 2), tp=4) == "n0 n1 n2 n2"


def test_too_few_devices_are_refused_with_the_numbers_and_the_way_out() -> None:
    rule = r"Mesh dp=3 tp=2 pp=2 needs 12 devices; the cluster has 10 on 5 nodes; the largest node has 2\. "
    with pytest.raises(PlanError, match=rule + r"Lower data_parallel_size to 2, or add 2\.") as caught:
        placed(nodes_of(2, 2, 2, 2, 2), dp=3, tp=2, pp=2)
    assert caught.value.facts == {"asked": 12, "available": 10, "largest": 2, "waits": False}


@pytest.mark.parametrize(
    ("cluster", "mesh", "message"),
    [
        (nodes_of(4), {"dp": 5}, r"needs 5 devices; the cluster has 4 on 1 node; .* has 4\. Lower data_parallel_s"),
        (nodes_of(0, unit="GPU"), {"dp": 1}, r"needs 1 GPU; the cluster has 0 on 1 node"),
        (
            nodes_of(0, unit="worker of 8 CPUs"),
            {"dp": 1},
            r"needs 1 worker of 8 CPUs; .* Use a cluster that has some, or add 1\.",
        ),
        (nodes_of(3), {"pp": 4}, r"Use dp=1 tp=1 pp=3, or add 1\."),
        (nodes_of(3), {"tp": 4}, r"Lower tensor_model_parallel_size, or add 1\."),
    ],
)
def test_a_request_that_can_never_be_met_is_refused(cluster: Cluster, mesh: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        placed(cluster, **mesh)
    assert caught.value.facts["waits"] is False


def test_a_request_that_others_stand_in_the_way_of_may_wait() -> None:
    with pytest.raises(PlanError, match=r"has 4 on 1 node \(2 in use by others\)") as caught:
        placed(nodes_of(4, held=2), dp=4)
    assert caught.value.facts["waits"] is True


def test_too_few_whole_places_for_teams_are_refused_with_the_numbers() -> None:
    rule = r"room for 3 teams of 2, each on one node; the cluster has 6 on 2 nodes; .*, which is room for 2\."
    with pytest.raises(PlanError, match=rule):
        placed(nodes_of(3, 3), dp=3, tp=2)


@given(
    devices=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    dp=st.integers(1, 3),
    pp=st.integers(1, 3),
    tp=st.integers(1, 3),
)
@settings(max_examples=80, deadline=None)
def test_no_node_is_overfull_and_no_team_is_torn(devices: list[int], dp: int, pp: int, tp: int) -> None:
    cluster, mesh = nodes_of(*devices), Mesh(dp=dp, pp=pp, tp=tp)
    assume(places_for_teams(cluster, tp=tp) >= dp * pp)
    nodes = place(mesh, cluster=cluster)
    assert len(nodes) == mesh.size
    assert all(used <= devices[int(node[1:])] for node, used in Counter(nodes).items())
    torn = [team for team in range(dp * pp) if len(set(nodes[team * tp : (team + 1) * tp])) > 1]
    assert not torn or tp > max(devices)
