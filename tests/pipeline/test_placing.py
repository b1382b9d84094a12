from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from raymega.pipeline.placing import stage_of, virtual_stages_on


@given(num_stages=st.integers(1, 9), chunks=st.integers(1, 5), folds=st.booleans())
def test_every_virtual_stage_lives_on_one_stage(num_stages: int, chunks: int, folds: bool) -> None:
    held = {s: virtual_stages_on(s, num_stages=num_stages, chunks=chunks, folds=folds) for s in range(num_stages)}
    assert sorted(v for some in held.values() for v in some) == list(range(num_stages * chunks))
    assert all(stage_of(v, num_stages=num_stages, folds=folds) == s for s, some in held.items() for v in some)


@given(num_stages=st.integers(2, 9), folds=st.booleans())
def test_neighbours_are_a_stage_apart_but_where_it_folds(num_stages: int, folds: bool) -> None:
    at = [stage_of(v, num_stages=num_stages, folds=folds) for v in range(2 * num_stages)]
    steps = [(b - a) % num_stages for a, b in pairwise(at)]
    back = num_stages - 1
    assert steps == ([1] * back + [0] + [back] * back if folds else [1] * (2 * num_stages - 1))
