from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.errors import ConfigError
from raymega.plan.stages import Layers, balanced_layers, layers_of_counts


def counts(layers: Layers) -> list[int]:
    return [end - first for first, end in layers]


def test_thirty_layers_on_four_stages_are_8_8_7_7() -> None:
    assert balanced_layers(30, num_stages=4) == ((0, 8), (8, 16), (16, 23), (23, 30))


def test_a_heavy_end_holds_fewer_layers() -> None:
    assert counts(balanced_layers(30, num_stages=4, loss_weight=2)) == [8, 8, 8, 6]
    assert counts(balanced_layers(30, num_stages=4, embedding_weight=3)) == [6, 8, 8, 8]


@given(num_stages=st.integers(1, 16), more=st.integers(0, 40))
def test_every_layer_is_held_once_and_counts_differ_by_one_at_most(num_stages: int, more: int) -> None:
    layers = balanced_layers(num_stages + more, num_stages=num_stages)
    assert [block for first, end in layers for block in range(first, end)] == list(range(num_stages + more))
    assert max(counts(layers)) - min(counts(layers)) <= 1


@given(more=st.integers(0, 5), weights=st.tuples(st.floats(0, 4), st.floats(0, 4)))
def test_no_other_cut_has_a_lighter_slowest_stage(more: int, weights: tuple[float, float]) -> None:
    def slowest(cut: list[int]) -> float:
        return max(cut[0] + weights[0], *cut[1:-1], cut[-1] + weights[1])

    made = counts(balanced_layers(3 + more, num_stages=3, embedding_weight=weights[0], loss_weight=weights[1]))
    every = [list(cut) for cut in product(range(1, 3 + more), repeat=3) if sum(cut) == 3 + more]
    assert slowest(made) == pytest.approx(min(slowest(cut) for cut in every))


def test_more_stages_than_layers_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"8 stages need at least 8 layers; the model has 6\. Lower pipeline_model"):
        balanced_layers(6, num_stages=8)


def test_layers_per_stage_of_a_config_become_ranges() -> None:
    assert layers_of_counts((3, 1, 2)) == ((0, 3), (3, 4), (4, 6))
