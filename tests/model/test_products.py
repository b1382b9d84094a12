"""Products by oneDNN and by torch itself are the same mathematics."""

import pytest
import torch

from raymega.model import products

CASES = [((3, 5, 7), 11), ((4, 8), 1), ((1, 1, 64), 33), ((6, 0), 4), ((0, 6), 4)]


@pytest.mark.parametrize(("shape", "rows"), CASES)
def test_a_product_is_that_of_the_numbers(shape: tuple[int, ...], rows: int) -> None:
    gen = torch.Generator().manual_seed(7)
    x, weight = torch.randn(shape, generator=gen), torch.randn(rows, shape[-1], generator=gen)
    bias = torch.randn(rows, generator=gen)
    exact = (x.double() @ weight.double().t() + bias.double()).float()
    torch.testing.assert_close(products.linear(x, weight, bias), exact, rtol=1e-5, atol=1e-5)


def test_parts_of_larger_tensors_are_taken_as_they_lie() -> None:
    gen = torch.Generator().manual_seed(8)
    x, weight = torch.randn(6, 20, generator=gen)[:, ::2], torch.randn(9, 10, generator=gen)
    torch.testing.assert_close(products.linear(x, weight), x @ weight.t())
    torch.testing.assert_close(products.backward_product(x @ weight.t(), weight), (x @ weight.t()) @ weight)


def test_the_bits_are_the_same_every_time() -> None:
    x, weight = torch.randn(64, 96), torch.randn(48, 96)
    first = products.linear(x, weight)
    assert all(torch.equal(first, products.linear(x.clone(), weight.clone())) for _ in range(5))


def test_without_the_operator_torchs_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_has_onednn", lambda: False)
    x, weight = torch.randn(5, 6), torch.randn(7, 6)
    assert torch.equal(products.linear(x, weight), torch.nn.functional.linear(x, weight))


def test_the_pinned_torch_has_the_operator() -> None:
    assert products._has_onednn() == torch.backends.mkldnn.is_available()
