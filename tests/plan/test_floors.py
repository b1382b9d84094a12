from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raymega.config.schema import Config
from raymega.plan.cluster import Cluster, Node
from raymega.plan.estimate import Bench
from raymega.plan.fitted import PUBLISHED
from raymega.plan.grid import Grid
from raymega.plan.hardware import DEVICES, PCIE4, Device, Link, Links, ethernet, infiniband, least_of, most_of
from raymega.plan.job import job_of
from raymega.plan.search import Board
from raymega.plan.space import free_space, runnable

MADE = Config.model_validate(
    {
        "model": {"num_layers": 3, "num_attention_heads": 4, "hidden_size": 256, "ffn_size": 768, "vocab_size": 3000},
        "data": {"seq_len": 128},
        "training": {"batch_size": 4, "micro_batch_size": 1},
    }
)
LOOKED_AT = 12  # layouts of each cluster


def mixed(kinds: Sequence[str], *, inside: Link, between: Link, alone: float = 1.0) -> Cluster:
    """A node of two of each kind."""
    nodes = (
        Node(id=f"n{i}", devices=2, device=replace(DEVICES[kind], alone=alone if kind == kinds[0] else 1.0))
        for i, kind in enumerate(kinds)
    )
    return Cluster(nodes=tuple(nodes), links=Links(device=inside, node=between, rack=between))


@given(
    kinds=st.lists(st.sampled_from(["l4", "a10g", "v100-16g", "l40s", "a100-40g"]), min_size=1, max_size=3),
    inside=st.sampled_from([PCIE4, ethernet(1)]), between=st.sampled_from([infiniband(400), ethernet(10)]),
    alone=st.sampled_from([1.0, 1.5]), first=st.integers(0, 40),
)  # fmt: skip
@example(kinds=["v100-16g", "a10g"], inside=PCIE4, between=ethernet(10), alone=1.0, first=0)
@example(kinds=["a10g", "a10g"], inside=ethernet(1), between=infiniband(400), alone=1.0, first=0)
@example(kinds=["a10g"], inside=PCIE4, between=ethernet(10), alone=1.5, first=0)
@settings(max_examples=4, deadline=None)
def test_no_layout_takes_less_than_its_floor(
    kinds: list[str], inside: Link, between: Link, alone: float, first: int
) -> None:
    cluster, job = mixed(kinds, inside=inside, between=between, alone=alone), job_of(MADE)
    space = free_space(MADE, cluster=cluster, features=runnable())
    grid = Grid.of(Bench.of(job, cluster=cluster, constants=PUBLISHED), space=space)
    board = Board.of(job, cluster=cluster, constants=PUBLISHED)
    places = np.flatnonzero(np.isfinite(grid.step_s))
    for at in places[first :: max(1, len(places) // LOOKED_AT)]:
        row = grid.at(int(at))
        assert board.tried(row.layout(3), estimated_s=row.step_s).step_s >= row.floor_s * (1 - 1e-9)


def test_of_devices_that_work_together_the_least_counts_in_everything() -> None:
    l4, a10g = DEVICES["l4"], DEVICES["a10g"]
    slow, fast = least_of([l4, a10g]), most_of([l4, a10g])
    assert (slow.flops_per_s["bf16"], slow.memory_bytes_per_s) == (70e12, 300e9)
    assert (fast.flops_per_s["bf16"], fast.memory_bytes_per_s) == (121e12, 600e9)
    assert least_of([l4, l4]) == most_of([l4]) == l4


A10G = DEVICES["a10g"]


@pytest.mark.parametrize(
    "faster",
    [
        replace(A10G, flops_per_s={precision: 4 * rate for precision, rate in A10G.flops_per_s.items()}),
        replace(A10G, memory_bytes_per_s=1e12),
    ],
    ids=["flops", "memory"],
)
def test_a_faster_device_beside_another_kind_never_predicts_slower(faster: Device) -> None:
    old = mixed(["a10g", "l4"], inside=PCIE4, between=ethernet(100))
    new = replace(old, nodes=(replace(old.nodes[0], device=faster), old.nodes[1]))
    job, layouts = job_of(MADE), []
    for cluster in (old, new):
        space = free_space(MADE, cluster=cluster, features=runnable())
        board = Board.of(job, cluster=cluster, constants=PUBLISHED)
        grid = Grid.of(Bench.of(job, cluster=cluster, constants=PUBLISHED), space=replace(space, dp=(4,), tp=(1,)))
        places = np.flatnonzero(np.isfinite(grid.step_s))[:20]
        layouts.append([board.tried(grid.at(int(at)).layout(3), estimated_s=0.0).step_s for at in places])
    assert all(later <= sooner * (1 + 1e-9) for sooner, later in zip(*layouts, strict=True))
