"""The order of the data: every row once an epoch, from any start, whatever the plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import ConfigError
from raymega.layout.data_order import MAX_PERIOD, NO_ROW, BlendOrder, DataOrder, ValidOrder, step_positions

sizes = st.integers(1, 500)
seeds = st.integers(0, 2**63 - 1)


def rows_of_steps(order: DataOrder, steps: range, *, batch_size: int) -> np.ndarray:
    return np.concatenate([order.row_of(step_positions(step, batch_size=batch_size)) for step in steps])


@given(num_rows=sizes, seed=seeds, epoch=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_each_epoch_has_every_row_exactly_once(num_rows: int, seed: int, epoch: int) -> None:
    positions = epoch * num_rows + np.arange(num_rows)
    rows = DataOrder(num_rows=num_rows, seed=seed).row_of(positions)
    assert np.array_equal(np.sort(rows), np.arange(num_rows))


@given(num_rows=sizes, seed=seeds, batch_size=st.integers(1, 40), start=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_starting_at_any_step_gives_the_rows_of_the_uninterrupted_order(
    num_rows: int, seed: int, batch_size: int, start: int
) -> None:
    order = DataOrder(num_rows=num_rows, seed=seed)
    whole = order.row_of(np.arange((start + 3) * batch_size))
    resumed = rows_of_steps(order, range(start, start + 3), batch_size=batch_size)
    assert np.array_equal(resumed, whole[start * batch_size :])


def test_unshuffled_epochs_ascend() -> None:
    rows = DataOrder(num_rows=5, seed=1, shuffle=False).row_of(np.arange(12))
    assert rows.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]


def test_epochs_and_seeds_have_different_orders() -> None:
    order = DataOrder(num_rows=1000, seed=7)
    first, second = order.row_of(np.arange(2000)).reshape(2, 1000)
    other = DataOrder(num_rows=1000, seed=8).row_of(np.arange(1000))
    assert (first == second).mean() < 0.01
    assert (first == other).mean() < 0.01


@pytest.mark.parametrize("num_rows", [2, 3, 5, 7, 12, 24])
def test_each_row_comes_at_each_index_about_equally_often(num_rows: int) -> None:
    epochs = 400 * num_rows
    rows = DataOrder(num_rows=num_rows, seed=3).row_of(np.arange(epochs * num_rows)).reshape(epochs, num_rows)
    counts = np.stack([(rows == row).sum(axis=0) for row in range(num_rows)])  # [row, index]
    chi_square = ((counts - 400.0) ** 2 / 400).sum()
    freedom = (num_rows - 1) ** 2
    assert chi_square < freedom + 6 * np.sqrt(2 * freedom) + 6


def test_neighbours_in_the_file_are_not_neighbours_in_the_order() -> None:
    rows = DataOrder(num_rows=10_000, seed=11).row_of(np.arange(10_000))
    assert (np.abs(np.diff(rows)) == 1).mean() < 0.002
    assert abs(np.corrcoef(rows, np.arange(10_000))[0, 1]) < 0.05


def test_the_order_is_pinned_so_that_old_runs_resume_on_their_own_rows() -> None:
    rows = DataOrder(num_rows=11, seed=42).row_of(np.arange(22))
    assert rows.tolist() == [9, 8, 2, 4, 3, 7, 6, 10, 1, 0, 5, 5, 1, 9, 2, 8, 7, 6, 0, 3, 10, 4]


def test_huge_corpora_and_far_positions_cost_one_look() -> None:
    order = DataOrder(num_rows=3 * 10**12 + 7, seed=5)
    rows = order.row_of(np.array([0, 10**12, 10**18], dtype=np.int64))
    assert ((rows >= 0) & (rows < order.num_rows)).all()


def test_resume_with_accumulation_continues_at_the_next_row_of_the_order() -> None:
    order = DataOrder(num_rows=64, seed=1, shuffle=False)
    assert rows_of_steps(order, range(3, 4), batch_size=8).tolist() == list(range(24, 32))


def test_resume_on_the_epoch_border_goes_on_with_the_second_epoch() -> None:
    order = DataOrder(num_rows=64, seed=9)
    resumed = rows_of_steps(order, range(8, 16), batch_size=8)
    assert np.array_equal(np.sort(resumed), np.arange(64))
    assert not np.array_equal(resumed, rows_of_steps(order, range(8), batch_size=8))


def test_resume_inside_the_third_epoch_repeats_and_skips_nothing() -> None:
    order = DataOrder(num_rows=10, seed=2)
    seen = np.concatenate([rows_of_steps(order, steps, batch_size=4) for steps in (range(6), range(6, 11))])
    assert np.bincount(seen[:40]).tolist() == [4] * 10


def test_any_walk_of_replicas_uses_the_first_rows_of_the_global_order() -> None:
    order, batch_size, seen = DataOrder(num_rows=1000, seed=4), 12, []
    replicas = [4] * 5 + [3] * 6 + [1] * 6 + [6] * 8
    for step, dp in enumerate(replicas):
        quota = np.split(step_positions(step, batch_size=batch_size), dp)
        seen += [row for part in quota for row in order.row_of(part).tolist()]
        assert seen == order.row_of(np.arange(batch_size * (step + 1))).tolist()


@given(
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=5),
    start=st.integers(0, 5000),
)
@settings(max_examples=40, deadline=None)
def test_a_blend_keeps_every_source_within_a_row_of_its_share(weights: list[int], start: int) -> None:
    blend = BlendOrder.build([17] * len(weights), weights=weights, seed=0, shuffle=True)
    source = blend.rows_of(np.arange(start + 300)).source
    share = np.array(weights) / sum(weights)
    for count in (start, start + 7, start + 300):
        assert (np.abs(np.bincount(source[:count], minlength=len(weights)) - count * share) < len(weights)).all()


def test_a_blend_gives_each_source_its_own_order_without_gaps() -> None:
    blend = BlendOrder.build([10, 6], weights=[0.7, 0.3], seed=5, shuffle=True)
    rows = blend.rows_of(np.arange(100, 300))
    for i, order in enumerate(blend.sources):
        mine = rows.row[rows.source == i]
        before = int((blend.rows_of(np.arange(100)).source == i).sum())
        assert np.array_equal(mine, order.row_of(before + np.arange(len(mine))))


def test_a_blend_interleaves_by_the_largest_deficit() -> None:
    blend = BlendOrder.build([9, 9, 9], weights=[2, 1, 1], seed=0, shuffle=False)
    assert blend.pattern.tolist() == [0, 1, 2, 0]
    assert blend.rows_of(np.arange(4, 8)).row.tolist() == [2, 1, 1, 3]


def test_sources_of_equal_size_are_shuffled_differently() -> None:
    blend = BlendOrder.build([100, 100], weights=[1, 1], seed=3, shuffle=True)
    first, second = (order.row_of(np.arange(100)) for order in blend.sources)
    assert (first == second).mean() < 0.1


def test_irrational_weights_are_kept_to_the_resolution_of_the_period() -> None:
    weights = np.array([np.pi, np.e, 1.0])
    blend = BlendOrder.build([5, 5, 5], weights=weights.tolist(), seed=0, shuffle=True)
    assert np.abs(blend.shares / blend.shares.sum() - weights / weights.sum()).max() < 1 / 8192


@given(weights=st.lists(st.floats(0.01, 1), min_size=2, max_size=40))
@settings(max_examples=20, deadline=None)
def test_every_share_is_within_one_position_of_the_longest_period(weights: list[float]) -> None:
    blend = BlendOrder.build([5] * len(weights), weights=weights, seed=0, shuffle=True)
    wanted = np.array(weights) / sum(weights)
    assert np.abs(blend.shares / blend.shares.sum() - wanted).max() < 1 / MAX_PERIOD


def test_a_blend_of_the_largest_numbers_is_that_of_ones() -> None:
    large = BlendOrder.build([5, 5, 5], weights=[1e308, 1e308, 1e308], seed=0, shuffle=True)
    assert large.shares.tolist() == [1, 1, 1]


def test_a_weight_that_no_period_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1/4096"):
        BlendOrder.build([5, 5], weights=[1.0, 1e-6], seed=0, shuffle=True)


@pytest.mark.parametrize("batch_size", [1, 3, 4, 10, 16])
def test_an_evaluation_has_every_row_once_and_batches_of_one_size(batch_size: int) -> None:
    order = ValidOrder(num_rows=10, batch_size=batch_size)
    batches = [order.positions(batch) for batch in range(order.num_batches)]
    assert {len(batch) for batch in batches} == {batch_size}
    rows = np.concatenate(batches)
    assert rows[rows != NO_ROW].tolist() == list(range(10))
