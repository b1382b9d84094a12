from typing import Literal

import pytest

from raymega.plan.cluster import Cluster, Node, devices_in
from raymega.plan.hardware import Device


@pytest.mark.parametrize(
    ("resources", "device", "cpus", "devices"),
    [
        ({"CPU": 4.0}, "cpu", 1, 4),
        ({"CPU": 4.0}, "cpu", 3, 1),
        ({"CPU": 4.0}, "cpu", 8, 0),
        ({"CPU": 4.0}, "cuda", 1, 0),
        ({"CPU": 8.0, "GPU": 2.0}, "cuda", 1, 2),
        ({"CPU": 8.0, "GPU": 2.0}, "cuda", 5, 1),
        ({}, "cpu", 1, 0),
    ],
)
def test_devices_of_a_node_s_resources(
    resources: dict[str, float], device: Literal["cpu", "cuda"], cpus: int, devices: int
) -> None:
    assert devices_in(resources, device=device, cpus_per_worker=cpus) == devices


def test_a_cluster_counts_what_is_there_what_is_free_and_its_largest_node() -> None:
    cluster = Cluster(
        nodes=(Node(id="a", devices=4, stock="4 CPU"), Node(id="b", devices=2, held=1)), unit="worker of 1 CPU"
    )
    assert (cluster.devices, cluster.free, cluster.largest) == (6, 5, 4)
    assert str(cluster) == "6 on 2 nodes (1 in use by others); the largest node has 4 (4 CPU)"
    assert (cluster.count(1), cluster.count(5)) == ("1 worker of 1 CPU", "5 workers of 1 CPU")


def test_a_lost_node_leaves_the_others_as_they_are() -> None:
    cluster = Cluster(nodes=(Node(id="a", devices=4), Node(id="b", devices=2)))
    assert cluster.without({"a"}) == Cluster(nodes=(Node(id="b", devices=2),))
    assert str(cluster.without({"a", "b"})) == "0 on 0 nodes; the largest node has 0"


def test_workers_make_a_cluster_of_their_nodes_in_their_order() -> None:
    cluster = Cluster.of_workers({"w3": "b", "w0": "a", "w4": "b"})
    assert [(node.id, node.devices) for node in cluster.nodes] == [("b", 2), ("a", 1)]


@pytest.mark.parametrize(("working", "pace"), [(4, 1.0), (3, 1.2), (1, 1.6), (5, 1.0)])
def test_a_device_is_faster_the_fewer_of_its_neighbours_work(working: int, pace: float) -> None:
    core = Device(name="core", flops_per_s={"fp32": 10.0}, memory_bytes=1.0, memory_bytes_per_s=5.0, alone=1.6)
    beside = core.beside(working=working, devices=4)
    assert (beside.flops_per_s["fp32"], beside.memory_bytes_per_s) == pytest.approx((10 * pace, 5 * pace))
