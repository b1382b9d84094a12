import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import RaymegaBug
from raymega.layout.checkpoint_layout import (
    MIN_CUT_ELEMENTS,
    assign,
    directory_of,
    is_ours,
    key_of,
    parse_key,
    shard_name,
    step_of,
    to_remove,
)
from raymega.layout.param_layout import Holding
from raymega.layout.shard_box import Box


def held(name: str, box: Box, counted: bool = True) -> Holding:
    return Holding(name=name, box=box, counted=counted)


SHAPES = {"big": (1000, 300), "norm": (300,), "scale": (), "small": (7, 5)}


def two_stages(num_replicas: int, tp: int) -> list[list[Holding]]:
    """`big` cut over tp on stage 0, the rest whole on stage 1, counted on shard 0."""
    rows = -(-1000 // tp)
    ranks: list[list[Holding]] = []
    for _ in range(num_replicas):
        for shard in range(tp):
            first, end = min(1000, shard * rows), min(1000, (shard + 1) * rows)
            ranks.append([held("big", Box((first, 0), (end - first, 300)))])
        for shard in range(tp):
            ranks.append([held(name, Box.whole(SHAPES[name]), shard == 0) for name in ("norm", "scale", "small")])
    return ranks


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4))
def test_every_element_is_written_once_by_a_rank_that_holds_it(num_replicas: int, tp: int):
    holdings = two_stages(num_replicas, tp)
    grids = {name: np.zeros(shape, dtype=int) for name, shape in SHAPES.items()}
    for mine, shares in zip(holdings, assign(holdings, shapes=SHAPES), strict=True):
        for share in shares:
            grids[share.name][share.box.within(Box.whole(SHAPES[share.name]))] += 1
            assert any(h.name == share.name and h.counted and h.box.overlap(share.box) == share.box for h in mine)
    assert all((grid == 1).all() for grid in grids.values())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 900), st.integers(1, 400)), min_size=1, max_size=12), st.integers(1, 8))
def test_replicas_write_equal_parts_within_a_row_or_a_small_box(shapes: list[tuple[int, int]], num_replicas: int):
    named = {f"t{i}": shape for i, shape in enumerate(shapes)}
    holdings = [[held(name, Box.whole(shape)) for name, shape in named.items()]] * num_replicas
    sizes = [sum(s.box.num_elements for s in shares) for shares in assign(holdings, shapes=named)]
    assert sum(sizes) == sum(a * b for a, b in shapes)
    assert max(abs(size - sum(sizes) / num_replicas) for size in sizes) <= max(MIN_CUT_ELEMENTS, 400) + 1


def test_a_part_that_nobody_holds_is_a_bug_that_names_it():
    with pytest.raises(RaymegaBug, match=r"no rank holds norm 200:300"):
        assign([[held("norm", Box((0,), (200,)))]], shapes={"norm": (300,)})


def test_boxes_that_overlap_are_a_bug():
    twice = [[held("norm", Box((0,), (200,)))], [held("norm", Box((100,), (200,)))]]
    with pytest.raises(RaymegaBug, match="norm is counted twice"):
        assign(twice, shapes={"norm": (300,)})


def test_steps_are_ordered_as_numbers_and_the_oldest_go():
    steps = [step_of(directory_of(step)) for step in (900, 1000, 9000, 10000, 10100)]
    assert to_remove([step for step in steps if step is not None], newest=10100, keep=3) == (900, 1000)


def test_a_later_step_neither_counts_nor_goes():
    assert to_remove([2, 4, 9, 10], newest=4, keep=1) == (2,)


@pytest.mark.parametrize(
    "name", ["step-final", "tmp", "step-", "step-007", "step-4.bak", "xstep-4", "step--4", "step-1\u0664"]
)
def test_foreign_names_are_no_steps(name: str):
    assert step_of(name) is None


def test_only_our_files_are_ours():
    ours = shard_name(generation=1000001, worker="w3", part=0, token="5f1c93aa")
    assert is_ours(ours)
    assert is_ours(f".{ours}.tmp0")
    assert is_ours("manifest.json")
    assert not is_ours("notes.txt")
    assert not is_ours("model.safetensors")


def test_a_key_is_read_back():
    box = Box((0, 48), (96, 48))
    assert key_of("layers.7.attn.wq", "param", box) == "layers.7.attn.wq|param|0:96,48:96"
    assert parse_key(key_of("a|b", "exp_avg", box)) == ("a|b", "exp_avg", box)
