import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.layout.shard_box import Box, uncovered

SHAPE = (5, 4, 3)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    offsets = tuple(draw(st.integers(0, size)) for size in SHAPE)
    return Box(offsets, tuple(draw(st.integers(0, size - o)) for o, size in zip(offsets, SHAPE, strict=True)))


def count(found: tuple[Box, ...]) -> np.ndarray:
    grid = np.zeros(SHAPE, dtype=int)
    for box in found:
        grid[box.within(Box.whole(SHAPE))] += 1
    return grid


@settings(max_examples=60, deadline=None)
@given(boxes(), boxes())
def test_a_box_minus_another_is_each_of_its_other_elements_once(one: Box, other: Box):
    rest = count(one.minus(other))
    assert (rest == count((one,)) * (1 - count((other,)))).all()


@settings(max_examples=60, deadline=None)
@given(boxes(), st.lists(boxes(), max_size=4))
def test_uncovered_is_what_no_box_holds(box: Box, by: list[Box]):
    assert (count(uncovered(box, by=by)) == count((box,)) * (count(tuple(by)) == 0)).all()


@settings(max_examples=60, deadline=None)
@given(boxes(), st.integers(1, 30))
def test_cut_parts_are_the_box_in_memory_order(box: Box, max_elements: int):
    grid = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    parts = box.cut(max_elements=max_elements)
    joined = np.concatenate([grid[part.within(Box.whole(SHAPE))].ravel() for part in parts])
    assert (joined == grid[box.within(Box.whole(SHAPE))].ravel()).all()
    assert max(part.num_elements for part in parts) <= max_elements


@pytest.mark.parametrize("box", [Box((), ()), Box((3,), (0,)), Box((0, 3), (4, 3))])
def test_a_box_is_read_back_from_its_text(box: Box):
    assert Box.parse(str(box)) == box


@pytest.mark.parametrize("text", ["", "3", "1:2:3", "4:2", "a:b"])
def test_a_text_that_is_no_box_is_refused(text: str):
    with pytest.raises(ValueError, match=r"box|int"):
        Box.parse(text)
