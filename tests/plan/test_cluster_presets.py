from copy import deepcopy
from math import isfinite
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raymega.config.schema import Config
from raymega.errors import ConfigError
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.cluster_presets import MACHINES, cluster_from, cluster_of
from raymega.plan.job import job_of
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.predict import predict_layout
from raymega.plan.stages import balanced_layers


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
        (
            {"device": {"memory_bytes": 1, "memory_bytes_per_s": 1, "flops_per_s": 5}},
            r"flops_per_s: 5 found; keys fp32",
        ),
        ({"labels": "spot"}, r"labels: 'spot' found; names with values are wanted"),
        ({"labels": ["a", "b"]}, r"labels: \['a', 'b'\] found"),
        ({"nodes": 100_000, "devices": 100_000}, r"10,000,000,000 devices in all; .* Use fewer"),
        ({"nodes": [{"count": 60_000}, {"count": 60_000}]}, r"has 120,000 devices in all"),
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
        ("dgx-a100:20000", r"has 160,000 devices in all; up to 100,000 can be planned for\. Use fewer"),
    ],
)
def test_a_word_that_is_no_cluster_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cluster_of(word)


def test_a_node_cannot_have_fewer_devices_than_are_in_use() -> None:
    with pytest.raises(ConfigError, match="not more in use than it has"):
        Node(id="n0", devices=1, held=2)


LINK = {"latency_s": 1e-5, "bytes_per_s": 1e9}
NUMBERS: dict[str, Any] = {
    "device": {"memory_bytes": 4e9, "memory_bytes_per_s": 5e9, "flops_per_s": {"fp32": 2e10, "bf16": 2e10}},
    "links": {"device": LINK, "node": LINK, "rack": LINK},
}
KEYS = [
    ("device", "memory_bytes"), ("device", "memory_bytes_per_s"), ("device", "flops_per_s", "fp32"),
    ("device", "flops_per_s", "bf16"), ("device", "alone"),
    *[("links", at, key) for at in NUMBERS["links"] for key in LINK],
]  # fmt: skip
SMALL = Config.model_validate({"model": {"num_layers": 2, "vocab_size": 300}, "training": {"batch_size": 4}})
PIPE = ParallelLayout(mesh=Mesh(dp=2, tp=1, pp=2), layers=balanced_layers(2, num_stages=2), microbatch_size=1)


def read_with(key: tuple[str, ...], value: object) -> Cluster | str:
    """A cluster with another number at `key`, or why there is none."""
    data: dict[str, Any] = {"nodes": 2, "devices": 2, **deepcopy(NUMBERS)}
    at = data
    for name in key[:-1]:
        at = at[name]
    at[key[-1]] = value
    try:
        return cluster_from(data)
    except ConfigError as error:
        return error.message


@given(
    key=st.sampled_from(KEYS),
    value=st.floats() | st.floats(1e-15, 1e27) | st.integers() | st.sampled_from([10**400, "1e400", "fast", True, []]),
)
@example(key=("links", "node", "latency_s"), value=float("nan"))
@example(key=("device", "memory_bytes"), value=float("inf"))
@example(key=("device", "memory_bytes_per_s"), value=1e-300)
@settings(max_examples=150, deadline=None)
def test_a_number_is_refused_by_its_key_or_makes_a_step_of_finite_time(key: tuple[str, ...], value: object) -> None:
    cluster = read_with(key, value)
    if isinstance(cluster, str):
        assert key[-1] in cluster
        return
    found = predict_layout(PIPE, job=job_of(SMALL), cluster=cluster)
    assert isfinite(found.step_s)
    assert found.step_s > 0
    assert isfinite(found.usable_bytes[0])
