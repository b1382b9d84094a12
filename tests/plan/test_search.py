from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.advice import advise
from raymega.plan.cluster import Cluster, Node
from raymega.plan.estimate import Bench
from raymega.plan.fitted import PUBLISHED
from raymega.plan.grid import Grid
from raymega.plan.hardware import DEVICES, PCIE4, Links, ethernet
from raymega.plan.job import job_of
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.predict import predict_layout
from raymega.plan.search import search
from raymega.plan.space import EVERYTHING, Features, free_space, runnable
from raymega.plan.stages import balanced_layers


def config(*, layers: int = 8, heads: int = 8, kv: int = 4, batch: int = 24, hidden: int = 512) -> Config:
    return Config.model_validate(
        {
            "model": {
                "num_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv, "hidden_size": hidden,
                "ffn_size": 3 * hidden, "vocab_size": 3000,
            },
            "data": {"seq_len": 128},
            "training": {"batch_size": batch, "micro_batch_size": 1},
        }
    )  # fmt: skip


def nodes_of(*devices: int, device: str = "a10g") -> Cluster:
    return Cluster(nodes=tuple(Node(id=f"n{i}", devices=d, device=DEVICES[device]) for i, d in enumerate(devices)))


def best_s(made: Config, cluster: Cluster) -> float:
    space = free_space(made, cluster=cluster, features=runnable())
    return search(job_of(made), space=space, cluster=cluster).ranked[0].step_s


def as_config(made: Config, layout: ParallelLayout) -> Config:
    axes = {
        "data_parallel_size": layout.mesh.dp,
        "tensor_model_parallel_size": layout.mesh.tp,
        "pipeline_model_parallel_size": layout.mesh.pp,
        "sequence_parallel": layout.sequence_parallel,
        "schedule": layout.schedule,
        "chunks": layout.num_chunks if layout.num_chunks > 1 else None,
        "recompute": layout.recompute,
        "shard_optimizer": layout.shard_optimizer,
        "layers_per_stage": tuple(end - first for first, end in layout.layers) if layout.num_chunks == 1 else None,
    }
    return made.model_copy(
        update={
            "parallelism": made.parallelism.model_copy(update=axes),
            "training": made.training.model_copy(update={"micro_batch_size": layout.microbatch_size}),
        }
    )


@given(
    layers=st.integers(1, 9), heads=st.sampled_from([4, 6, 8]), batch=st.integers(1, 24),
    nodes=st.lists(st.integers(1, 8), min_size=1, max_size=3),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_what_the_planner_calls_fitting_is_what_the_config_s_rules_let_pass(
    layers: int, heads: int, batch: int, nodes: list[int]
) -> None:
    made, cluster = config(layers=layers, heads=heads, kv=2, batch=batch, hidden=48 * heads), nodes_of(*nodes)
    found = search(job_of(made), space=free_space(made, cluster=cluster, features=EVERYTHING), cluster=cluster)
    for verdict in found.ranked:
        mesh = verdict.layout.mesh
        assert not faults_of(as_config(made, verdict.layout))
        assert mesh.size <= cluster.free
        assert mesh.tp <= cluster.largest


def grid_of(made: Config, cluster: Cluster, features: Features = EVERYTHING) -> Grid:
    space = free_space(made, cluster=cluster, features=features)
    return Grid.of(Bench.of(job_of(made), cluster=cluster, constants=PUBLISHED), space=space)


def layouts_of(grid: Grid, *, layers: int) -> Iterator[ParallelLayout]:
    return (grid.at(int(at)).layout(layers) for at in np.flatnonzero(np.isfinite(grid.step_s)))


@pytest.mark.parametrize(("layers", "heads", "batch", "nodes"), [(5, 6, 6, (4, 2)), (1, 4, 5, (3,)), (8, 4, 4, (8,))])
def test_no_layout_that_is_looked_at_breaks_a_rule_of_the_config(
    layers: int, heads: int, batch: int, nodes: tuple[int, ...]
) -> None:
    made = config(layers=layers, heads=heads, kv=2, batch=batch, hidden=48 * heads)
    found = list(layouts_of(grid_of(made, nodes_of(*nodes)), layers=layers))
    assert found
    assert not [layout for layout in found if faults_of(as_config(made, layout))]


def test_every_setting_that_a_config_has_is_searched() -> None:
    found = list(layouts_of(grid_of(config(), nodes_of(4, 4)), layers=8))
    seen = {name: {getattr(layout, name) for layout in found} for name in ("schedule", "num_chunks", "microbatch_size")}
    assert seen["schedule"] == {"1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"}
    assert seen["num_chunks"] == {1, 2, 3, 4}
    assert seen["microbatch_size"] == {1, 2, 3, 4, 6, 8, 12, 24}
    assert {layout.recompute for layout in found} == {"none", "selective", "full"}
    assert {layout.sequence_parallel for layout in found} == {False, True}
    assert {layout.shard_optimizer for layout in found} == {"none", "zero1"}
    meshes = {layout.mesh for layout in found}
    assert {mesh.dp for mesh in meshes} == {mesh.pp for mesh in meshes} == set(range(1, 9))
    assert {mesh.tp for mesh in meshes} == {1, 2, 4}


def test_backwards_in_two_parts_are_chosen_where_they_fill_a_pipeline_and_are_timed_on_their_actions() -> None:
    made, cluster = config(layers=8, batch=4), nodes_of(4)
    space = replace(free_space(made, cluster=cluster, features=runnable()), tp=(1,), dp=(1,), pp=(4,))
    whole = replace(space, schedules=(("1f1b", 1), ("interleaved", 2)))
    best, plain = (search(job_of(made), space=some, cluster=cluster).ranked[0] for some in (space, whole))
    assert best.layout.order.splits
    assert best.step_s < plain.step_s
    again = predict_layout(best.layout, job=job_of(made), cluster=cluster)
    assert again.step_s == pytest.approx(best.step_s)
    assert again.peak_bytes == best.peak_bytes


@given(
    dp=st.integers(1, 3),
    tp=st.sampled_from([1, 2, 4, 3]),
    pp=st.integers(1, 4),
    microbatch=st.sampled_from([1, 2, 3, 5]),
)
@settings(max_examples=40, deadline=None)
def test_what_the_rules_let_pass_can_be_predicted(dp: int, tp: int, pp: int, microbatch: int) -> None:
    made = config()
    layout = ParallelLayout(
        mesh=Mesh(dp=dp, tp=tp, pp=pp), layers=balanced_layers(8, num_stages=pp), microbatch_size=microbatch
    )
    if not faults_of(as_config(made, layout)):
        assert predict_layout(layout, job=job_of(made), cluster=nodes_of(48)).step_s > 0


def test_more_devices_never_predict_slower() -> None:
    made = config()
    times = [best_s(made, nodes_of(count)) for count in (1, 2, 3, 5, 6, 8, 12, 16)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(times))


def better(cluster: Cluster, *, in_what: str, times: float) -> Cluster:
    """`cluster` with one thing more or faster of all that it has."""
    nodes, links = cluster.nodes, cluster.links
    if in_what in ("nodes", "one node"):
        more = (len(nodes) * (round(times) - 1)) if in_what == "nodes" else 1
        return replace(cluster, nodes=(*nodes, *(replace(nodes[0], id=f"more{i}") for i in range(more))))
    if in_what == "devices":
        return replace(cluster, nodes=tuple(replace(node, devices=2 * node.devices) for node in nodes))
    if in_what in ("device", "node"):
        link = getattr(links, in_what)
        faster = replace(link, bytes_per_s=times * link.bytes_per_s, latency_s=link.latency_s / times)
        return replace(cluster, links=replace(links, **{in_what: faster}))
    rates = {name: times * rate for name, rate in nodes[0].device.flops_per_s.items()}
    fields = {"flops": {"flops_per_s": rates}, "memory": {"memory_bytes": times * nodes[0].device.memory_bytes}}
    device = replace(nodes[0].device, **fields[in_what])
    return replace(cluster, nodes=tuple(replace(node, device=device) for node in nodes))


@given(
    layers=st.integers(2, 12), batch=st.sampled_from([6, 8, 12]), vocab=st.sampled_from([300, 32_000]),
    nodes=st.integers(1, 4), devices=st.sampled_from([1, 2, 4]), memory=st.sampled_from([1e9, 24e9]),
    in_what=st.sampled_from(["nodes", "one node", "devices", "node", "device", "flops", "memory"]),
    times=st.sampled_from([2.0, 4.0]),
)  # fmt: skip
@settings(max_examples=16, deadline=None)
def test_a_cluster_that_is_better_in_one_thing_never_predicts_slower(
    layers: int, batch: int, vocab: int, nodes: int, devices: int, memory: float, in_what: str, times: float
) -> None:
    made = wordy(config(layers=layers, batch=batch), vocab=vocab)
    device = replace(DEVICES["a10g"], memory_bytes=memory)
    links = Links(device=PCIE4, node=ethernet(12.5), rack=ethernet(12.5))  # a node's own is the faster
    row = (Node(id=f"n{i}", devices=devices, device=device) for i in range(nodes))
    cluster = Cluster(nodes=tuple(row), links=links)
    worse, more = (
        search(job_of(made), space=free_space(made, cluster=there, features=runnable()), cluster=there)
        for there in (cluster, better(cluster, in_what=in_what, times=times))
    )
    assert worse.is_proven
    assert more.is_proven
    if worse.ranked:
        assert more.ranked[0].step_s <= worse.ranked[0].step_s * (1 + 1e-9)


@pytest.mark.parametrize("field", ["hidden", "batch", "layers"])
def test_more_work_takes_longer(field: str) -> None:
    least = {"hidden": 512, "batch": 24, "layers": 8}
    more = {**least, field: 2 * least[field]}
    assert best_s(config(**more), nodes_of(4)) > best_s(config(**least), nodes_of(4))


def test_a_faster_device_and_a_faster_link_take_less() -> None:
    made, slow = config(), nodes_of(2, 2, device="a10g")
    link = replace(slow.links.node, bytes_per_s=slow.links.node.bytes_per_s / 100)
    far = replace(slow, links=replace(slow.links, node=link))
    assert best_s(made, nodes_of(2, 2, device="h200")) < best_s(made, slow) <= best_s(made, far)


@pytest.mark.parametrize("features", [runnable(), EVERYTHING], ids=["runnable", "everything"])
@pytest.mark.parametrize("asked", ["zero1", "mirrored"])
def test_a_cut_of_the_optimizer_state_that_is_asked_for_is_kept_whatever_else_is_free(
    asked: str, features: Features
) -> None:
    axes = {"shard_optimizer": asked, "data_parallel_size": "auto", "pipeline_model_parallel_size": "auto"}
    made = config(layers=4)
    made = made.model_copy(update={"parallelism": made.parallelism.model_copy(update=axes)})
    space = replace(free_space(made, cluster=nodes_of(4), features=features), tp=(1,))
    found = search(job_of(made), space=space, cluster=nodes_of(4))
    assert {verdict.layout.shard_optimizer for verdict in found.ranked} == {asked}


def test_a_stage_on_slower_devices_gets_fewer_layers() -> None:
    made = config(layers=12, batch=1)
    cluster = Cluster(
        nodes=(Node(id="new", devices=1, device=DEVICES["h200"]), Node(id="old", devices=1, device=DEVICES["v100-32g"]))
    )
    space = replace(free_space(made, cluster=cluster, features=runnable()), tp=(1,), pp=(2,), dp=(1,))
    best = search(job_of(made), space=space, cluster=cluster).ranked[0].layout
    assert best.layers[0][1] > 9


def test_the_last_stage_is_shorter_where_the_vocabulary_is_large() -> None:
    made = config(layers=8)
    made = made.model_copy(update={"model": made.model.model_copy(update={"vocab_size": 50_000})})
    cluster = nodes_of(4)
    space = replace(free_space(made, cluster=cluster, features=runnable()), tp=(1,), pp=(4,), dp=(1,))
    counts = [end - first for first, end in search(job_of(made), space=space, cluster=cluster).ranked[0].layout.layers]
    assert counts[-1] < counts[1]


def wordy(made: Config, *, vocab: int, dp: int | str = "auto", pp: int | str = "auto") -> Config:
    axes = {"data_parallel_size": dp, "pipeline_model_parallel_size": pp}
    return made.model_copy(
        update={
            "model": made.model.model_copy(update={"vocab_size": vocab}),
            "parallelism": made.parallelism.model_copy(update=axes),
        }
    )


def test_where_embedding_and_head_weigh_a_layer_the_stages_between_them_hold_more() -> None:
    made = wordy(config(layers=4, hidden=2048, batch=12), vocab=32_000)
    space = replace(free_space(made, cluster=nodes_of(1, 1, 1), features=runnable()), dp=(1,))
    assert space.pp == (1, 2, 3)
    best = search(job_of(made), space=space, cluster=nodes_of(1, 1, 1)).ranked[0].layout
    assert [end - first for first, end in best.layers] == [1, 2, 1]


@given(
    layers=st.integers(1, 7), vocab=st.sampled_from([300, 32_000]), devices=st.integers(1, 6),
    dp=st.integers(1, 3), pp=st.integers(1, 5), memory=st.sampled_from([4e9, 24e9]),
)  # fmt: skip
@example(layers=4, vocab=32_000, devices=3, dp=1, pp=3, memory=4e9)
@settings(max_examples=30, deadline=None)
def test_what_is_asked_for_and_fits_is_never_faster_than_the_best(
    layers: int, vocab: int, devices: int, dp: int, pp: int, memory: float
) -> None:
    made = wordy(config(layers=layers, hidden=2048, batch=12), vocab=vocab, dp=dp, pp=min(pp, layers))
    device = replace(DEVICES["a10g"], memory_bytes=memory)
    cluster = Cluster(nodes=tuple(Node(id=f"n{i}", devices=1, device=device) for i in range(devices)))
    try:
        advice = advise(made, cluster=cluster)
    except PlanError:
        return
    if advice.asked is not None and advice.asked.fits:
        assert advice.best.step_s <= advice.asked.step_s
