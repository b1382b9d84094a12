from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import StateLost
from raymega.layout.param_layout import Holding
from raymega.layout.reshard import Layout, Move, moves
from raymega.layout.shard_box import Box

SHAPES = {"embed.tokens": (13, 6), "layers.0.attn.wq": (8, 6), "norm": (6,)}
WORKERS = tuple(f"w{i}" for i in range(6))
NODES = {worker: f"n{i // 2}" for i, worker in enumerate(WORKERS)}


def held(name: str, box: Box) -> Holding:
    return Holding(name=name, box=box, counted=True)


def split(name: str, dim: int, cuts: list[int]) -> list[Holding]:
    """The tensor cut along `dim` at `cuts`."""
    whole = Box.whole(SHAPES[name])
    parts = (b - a for a, b in pairwise([0, *sorted(cuts), whole.sizes[dim]]))
    found, first = [], 0
    for size in parts:
        offsets = (*(0,) * dim, first, *(0,) * (len(whole.sizes) - dim - 1))
        found.append(held(name, Box(offsets, (*whole.sizes[:dim], size, *whole.sizes[dim + 1 :]))))
        first += size
    return found


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Every tensor cut somewhere, each part held by one worker or more, as replicas do."""
    layout: dict[str, list[Holding]] = {worker: [] for worker in draw(st.permutations(WORKERS))}
    for name, shape in SHAPES.items():
        dim = draw(st.integers(0, len(shape) - 1))
        cuts = draw(st.lists(st.integers(1, shape[dim] - 1), max_size=3, unique=True))
        for part in split(name, dim, cuts):
            for worker in draw(st.sets(st.sampled_from(WORKERS), min_size=1, max_size=3)):
                layout[worker].append(part)
    return layout


def filled(holdings: list[Holding], name: str) -> np.ndarray:
    grid = np.zeros(SHAPES[name], dtype=int)
    for holding in holdings:
        if holding.name == name:
            grid[holding.box.within(Box.whole(SHAPES[name]))] = 1
    return grid


def received(found: tuple[Move, ...], worker: str, name: str) -> np.ndarray:
    grid = np.zeros(SHAPES[name], dtype=int)
    for move in found:
        if (move.receiver, move.name) == (worker, name):
            grid[move.box.within(Box.whole(SHAPES[name]))] += 1
    return grid


@settings(max_examples=30, deadline=None)
@given(layouts(), layouts())
def test_every_element_is_kept_or_written_once_and_nothing_else_travels(old: Layout, new: Layout):
    found = moves(old=old, new=new, alive=frozenset(WORKERS), node_of=NODES)
    for worker in WORKERS:
        for name in SHAPES:
            missing = filled(list(new[worker]), name) * (1 - filled(list(old[worker]), name))
            assert (received(found, worker, name) == missing).all()


@settings(max_examples=30, deadline=None)
@given(layouts(), layouts(), st.sets(st.sampled_from(WORKERS), min_size=1))
def test_sources_are_alive_and_hold_what_they_send_or_the_loss_is_named(old: Layout, new: Layout, alive: set[str]):
    targets = {worker: new[worker] for worker in new if worker in alive}
    living = {name: sum(filled(list(old[w]), name) for w in alive) for name in SHAPES}
    try:
        found = moves(old=old, new=targets, alive=frozenset(alive), node_of=NODES)
    except StateLost as error:
        lost = error.facts["lost"]
        still = [name for name, box in lost if np.any(living[name][box.within(Box.whole(SHAPES[name]))])]
        if not lost or still:
            pytest.fail(f"named as lost, but alive: {still}")
        return
    for move in found:
        assert move.source in alive
        assert filled(list(old[move.source]), move.name)[move.box.within(Box.whole(SHAPES[move.name]))].all()


@settings(max_examples=20, deadline=None)
@given(layouts())
def test_a_layout_that_stays_moves_nothing(old: Layout):
    assert moves(old=old, new=old, alive=frozenset(WORKERS), node_of=NODES) == ()


def test_a_holder_on_the_same_node_is_the_source():
    box = Box.whole(SHAPES["norm"])
    old = {worker: [held("norm", box)] for worker in ("w0", "w4")}
    (move,) = moves(old=old, new={"w5": [held("norm", box)]}, alive=frozenset(WORKERS), node_of=NODES)
    assert move == Move(receiver="w5", name="norm", box=box, source="w4")


def test_far_receivers_share_the_sources():
    box = Box.whole(SHAPES["norm"])
    old = {worker: [held("norm", box)] for worker in ("w0", "w1")}
    new = {worker: [held("norm", box)] for worker in ("w2", "w3", "w4", "w5")}
    found = moves(old=old, new=new, alive=frozenset(WORKERS), node_of=NODES)
    assert [move.source for move in found] == ["w0", "w1", "w0", "w1"]


def test_the_picture_of_the_module_is_right():
    old = {"w0": [held("x", Box((0,), (6,)))], "w1": [held("x", Box((6,), (6,)))]}
    new = {f"w{i}": [held("x", Box((4 * i,), (4,)))] for i in range(3)}
    found = moves(old=old, new=new, alive=frozenset(WORKERS), node_of=NODES)
    assert [(m.receiver, str(m.box), m.source) for m in found] == [("w1", "4:6", "w0"), ("w2", "8:12", "w1")]


def test_a_box_without_a_living_holder_is_named():
    old = {"w0": [held("norm", Box((0,), (3,)))], "w1": [held("norm", Box((3,), (3,)))]}
    new = {"w0": [held("norm", Box.whole(SHAPES["norm"]))]}
    with pytest.raises(StateLost, match=r"norm 3:6 had no living holder"):
        moves(old=old, new=new, alive=frozenset({"w0"}), node_of=NODES)
