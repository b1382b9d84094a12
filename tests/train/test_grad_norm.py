import math

import pytest
import torch

from raymega.train.grad_norm import sum_of_squares


def test_it_is_exact_to_rounding_over_any_ranges():
    grad = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    ranges = [(0, 1), (5, 5), (7, 3000), (4096, 10_000)]
    want = sum(grad[a:b].double().square().sum().item() for a, b in ranges)
    assert sum_of_squares(grad, ranges=ranges) == pytest.approx(want, rel=1e-7)


def test_many_small_elements_beside_a_large_one_are_not_lost():
    grad = torch.full((1 << 22,), 1e-3)
    grad[0] = 100.0
    assert sum_of_squares(grad, ranges=[(0, len(grad))]) == pytest.approx(1e4 + (len(grad) - 1) * 1e-6, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 1023, 2047, 2999])
def test_one_bad_element_shows(bad, at):
    grad = torch.zeros(3000)
    grad[at] = bad
    assert not math.isfinite(sum_of_squares(grad, ranges=[(0, 3000)]))


def test_nothing_counted_is_nothing():
    assert sum_of_squares(torch.ones(8), ranges=[]) == 0.0
