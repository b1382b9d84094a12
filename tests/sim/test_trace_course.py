"""A trace of many nodes is laid over few places, and no place leaves twice or comes without having left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.errors import ConfigError
from raymega.sim.node_trace import NodeTrace
from raymega.sim.trace_course import course_of

PLACES = ("a", "b", "c", "d")


def trace(*nodes: int) -> NodeTrace:
    rows = tuple((100.0 * at, count) for at, count in enumerate(nodes))
    return NodeTrace(rows=rows, end_s=rows[-1][0])


def test_changes_that_are_too_small_to_show_add_up_until_they_do():
    course = course_of(trace(40, 37, 34, 31, 40), places=PLACES, least=1, speed=10.0)
    assert [(turn.at_s, len(turn.leaving), len(turn.coming)) for turn in course] == [(20.0, 1, 0), (40.0, 0, 1)]
    assert course[0].leaving == course[1].coming


def test_a_bulk_loss_leaves_as_many_as_have_to_stay():
    (turn,) = course_of(trace(40, 1), places=PLACES, least=3, speed=1.0)
    assert len(turn.leaving) == 1


@given(nodes=st.lists(st.integers(0, 30), min_size=2, max_size=30), least=st.integers(1, 4), seed=st.integers(0, 9))
def test_who_leaves_was_there_and_who_comes_was_not(nodes: list[int], least: int, seed: int):
    there = set(PLACES)
    for turn in course_of(trace(30, *nodes), places=PLACES, least=least, speed=1.0, seed=seed):
        assert set(turn.leaving) <= there
        assert not set(turn.coming) & there
        there = (there - set(turn.leaving)) | set(turn.coming)
        assert len(there) >= least


def test_a_seed_draws_the_same_places_again():
    one, two, other = (course_of(trace(4, 2, 4, 1), places=PLACES, least=1, speed=1.0, seed=s) for s in (3, 3, 4))
    assert one == two != other


def test_time_that_stands_still_is_refused():
    with pytest.raises(ConfigError, match="--speed is 0"):
        course_of(trace(4, 2), places=PLACES, least=1, speed=0.0)
