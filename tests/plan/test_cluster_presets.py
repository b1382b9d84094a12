import pytest

from raymega.errors import ConfigError
from raymega.plan.cluster import Node
from raymega.plan.cluster_presets import MACHINES, cluster_from, cluster_of


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_makes_a_cluster(name: str) -> None:
    cluster = cluster_of(f"{name}:3")
    assert len(cluster.nodes) == 3
    assert cluster.devices == 3 * MACHINES[name].devices


def test_a_cluster_is_read_from_plain_data() -> None:
    cluster = cluster_from(
        {
            "nodes": [{"count": 2, "devices": 8, "device": "a100-80g", "rack": "a"}, {"devices": 4, "rack": "b"}],
            "device": "h200",
            "labels": {"ray.io/market-type": "spot"},
            "links": {"device": "nvlink3", "node": {"latency_s": 1e-5, "bytes_per_s": 1e9}},
        }
    )
    assert [(node.devices, node.device.name, node.rack) for node in cluster.nodes] == [
        (8, "a100-80g", "a"), (8, "a100-80g", "a"), (4, "h200", "b"),
    ]  # fmt: skip
    assert cluster.links.node.bytes_per_s == cluster.links.rack.bytes_per_s == 1e9
    assert cluster.nodes[0].labels == {"ray.io/market-type": "spot"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"nodes": 0}, r"cluster\.nodes\.count is 0; a cluster has at least one node"),
        ({"nodes": 2, "devices": -1}, r"cluster\.nodes\.devices is -1"),
        ({"nodes": "many"}, r"is many; .* Use 1 or more"),
        ({"device": "a100-80"}, r"there is no 'a100-80'\. Did you mean a100-80g"),
        ({"nods": 2}, r"unknown key nods\. Did you mean nodes\?"),
        ({"links": {"node": {"bytes_per_s": -1.0}}}, r"bytes_per_s of cluster\.links\.node is -1; .* positive"),
        ({"links": {"node": {"bytes_per_s": "fast"}}}, r"is 'fast'; a number is wanted"),
        ({"links": {"node": {"latency_s": -1.0, "bytes_per_s": 1.0}}}, r"no message arrives before it is sent"),
        (
            {"device": {"memory_bytes": 0, "memory_bytes_per_s": 1, "flops_per_s": {"bf16": 1}}},
            r"memory_bytes of .* is 0",
        ),
        ({"device": {"memory_bytes": 1, "memory_bytes_per_s": 1, "flops_per_s": {}}}, r"has no number format"),
    ],
)
def test_an_impossible_cluster_is_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cluster_from(data)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("dgx-a10:2", r"there is no machine 'dgx-a10'\. Did you mean dgx-a100\?"),
        ("dgx-a100:0", r"is 0; a cluster has at least one node"),
        ("dgx-a100:-3", r"is -3"),
    ],
)
def test_a_word_that_is_no_cluster_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cluster_of(word)


def test_a_node_cannot_have_fewer_devices_than_are_in_use() -> None:
    with pytest.raises(ConfigError, match="not more in use than it has"):
        Node(id="n0", devices=1, held=2)
