"""The fewest nodes that would do, as the error names them, are just those that the search needs."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.plan.advice import advise
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import DEVICES
from raymega.plan.job import job_of
from raymega.plan.leanest import leanest, nodes_needed, peak_bytes
from raymega.plan.search import search
from raymega.plan.space import free_space, runnable


def config(*, layers: int, vocab: int, batch: int = 8, shard: str = "none") -> Config:
    model = {"num_layers": layers, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": vocab}
    return Config.model_validate(
        {
            "model": model,
            "data": {"seq_len": 256},
            "parallelism": {"shard_optimizer": shard},
            "training": {"batch_size": batch, "micro_batch_size": 1},
        }
    )


def nodes(count: int, *, devices: int, memory_bytes: float) -> Cluster:
    device = replace(DEVICES["a10g"], name="made", memory_bytes=memory_bytes)
    return Cluster(nodes=tuple(Node(id=f"n{index}", devices=devices, device=device) for index in range(count)))


def is_held(made: Config, cluster: Cluster) -> bool:
    space = free_space(made, cluster=cluster, features=runnable())
    return bool(search(job_of(made), space=space, cluster=cluster).ranked)


@given(
    layers=st.integers(1, 10), vocab=st.sampled_from([300, 20_000]), devices=st.sampled_from([1, 2]),
    memory=st.sampled_from([2e7, 4e7, 1e8, 2e8]), shard=st.sampled_from(["none", "zero1"]),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_so_many_nodes_more_hold_the_model_and_one_less_does_not(
    layers: int, vocab: int, devices: int, memory: float, shard: str
) -> None:
    made, one = config(layers=layers, vocab=vocab, shard=shard), nodes(1, devices=devices, memory_bytes=memory)
    assume(not is_held(made, one))
    more = nodes_needed(job_of(made), space=free_space(made, cluster=one, features=runnable()), cluster=one)
    if more is None:
        assert not is_held(made, nodes(40, devices=devices, memory_bytes=memory))
        return
    assert is_held(made, nodes(1 + more, devices=devices, memory_bytes=memory))
    assert not is_held(made, nodes(more, devices=devices, memory_bytes=memory))


def test_the_leanest_layout_takes_layers_from_the_ends_that_hold_a_large_vocabulary() -> None:
    made, cluster = config(layers=12, vocab=20_000), nodes(4, devices=1, memory_bytes=1e7)
    lean = leanest(job_of(made), space=free_space(made, cluster=cluster, features=runnable()), cluster=cluster)
    counts = [end - first for first, end in lean.layers]
    assert counts[0] < counts[1] > counts[-1]


def test_a_cut_of_the_optimizer_s_state_is_offered_where_it_does() -> None:
    made = config(layers=4, vocab=300)
    for memory in (4.0e7, 3.6e7, 3.2e7, 2.8e7):
        cluster = nodes(2, devices=1, memory_bytes=memory)
        cuts = [shard for shard in ("mirrored", "zero1") if is_held(config(layers=4, vocab=300, shard=shard), cluster)]
        if is_held(made, cluster):
            continue
        with pytest.raises(PlanError, match="No layout of this model fits") as caught:
            advise(made, cluster=cluster)
        assert (f"Set parallelism.shard_optimizer to {cuts[0]}" in str(caught.value)) if cuts else True
        assert ("shard_optimizer" in str(caught.value)) == bool(cuts)


def test_devices_of_the_size_that_the_error_names_do() -> None:
    made = config(layers=4, vocab=20_000)
    with pytest.raises(PlanError, match="No layout of this model fits") as caught:
        advise(made, cluster=nodes(1, devices=1, memory_bytes=1e7))
    cluster = nodes(1, devices=1, memory_bytes=1e9)
    lean = leanest(job_of(made), space=free_space(made, cluster=cluster, features=runnable()), cluster=cluster)
    larger = nodes(1, devices=1, memory_bytes=peak_bytes(job_of(made), lean) / 0.94 * 1.001)
    assert advise(made, cluster=larger).best.fits
    assert "se devices of 1 GB" in str(caught.value)
