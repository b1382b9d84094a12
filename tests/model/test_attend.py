"""Attention in bf16 has values and gradients as near to the exact ones as torch's own, and keeps no scores."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from raymega.model.attend import BLOCK, TORCHS_LENGTH, attend

SHAPES = [
    (2, 8, 4, 4 * BLOCK, 64),
    (1, 6, 2, BLOCK + 5, 32),
    (2, 3, 3, 2 * BLOCK, 16),
    (3, 2, 2, 7, 8),
    (1, 5, 1, 1, 16),
]
"""(batch, heads, kv heads, T, K)."""


def drawn(shape: tuple[int, ...]) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values as the model lays them out, and the gradient of what is mixed."""
    batch, heads, kv_heads, length, size = shape
    dice = torch.Generator().manual_seed(sum(shape))
    q, k, v, dy = (
        torch.randn(batch, length, n, size, generator=dice).bfloat16().transpose(1, 2)
        for n in (heads, kv_heads, kv_heads, heads)
    )
    return [x.requires_grad_() for x in (q, k, v)], dy


def torchs(*qkv: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)


def exact(qkv: list[Tensor], dy: Tensor) -> list[Tensor]:
    """The same in fp64, with all scores at once."""
    wide = [x.detach().double().requires_grad_() for x in qkv]
    with sdpa_kernel(SDPBackend.MATH):
        mixed = torchs(*wide)
    return [mixed.detach(), *torch.autograd.grad(mixed, wide, dy.double())]


def error(found: list[Tensor], expected: list[Tensor]) -> float:
    """Of all that is compared, relative to its norm."""
    x, y = (torch.cat([one.double().flatten() for one in some]) for some in (found, expected))
    return float((x - y).norm() / y.norm())


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_as_near_to_the_exact_ones_as_torchs(shape: tuple[int, ...]):
    qkv, dy = drawn(shape)
    expected = exact(qkv, dy)
    ours, theirs = ([mixed.detach(), *torch.autograd.grad(mixed, qkv, dy)] for mixed in (attend(*qkv), torchs(*qkv)))
    for some in (slice(0, 1), slice(1, 4)):
        assert error(ours[some], expected[some]) < 4e-3  # bf16 has 8 bits: half a unit is at most 4e-3 of a value
        assert error(ours[some], expected[some]) <= 1.2 * error(theirs[some], expected[some])
    assert [x.dtype for x in ours] == [torch.bfloat16] * 4


def test_a_query_hears_no_later_key():
    qkv, _ = drawn((1, 4, 2, 2 * BLOCK, 16))
    early = attend(*qkv)[:, :, : BLOCK + 9]
    later = [x.detach().clone() for x in qkv]
    for x in later:
        x[:, :, BLOCK + 9 :] = 1e3
    assert early.equal(attend(*later)[:, :, : BLOCK + 9])


def test_a_head_has_the_same_bits_whichever_others_are_there():
    qkv, dy = drawn((2, 8, 4, 2 * BLOCK, 32))
    mixed = attend(*qkv)
    whole = [mixed, *torch.autograd.grad(mixed, qkv, dy)]
    shard = [x.detach()[:, : x.shape[1] // 2].requires_grad_() for x in qkv]
    mixed = attend(*shard)
    for part, of in zip([mixed, *torch.autograd.grad(mixed, shard, dy[:, :4])], whole, strict=True):
        torch.testing.assert_close(part, of[:, : part.shape[1]], rtol=0, atol=0)


def test_no_score_outlives_its_block():
    qkv, _ = drawn((1, 2, 2, 8 * BLOCK, 8))
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attend(*qkv)
    assert sum(kept) == 4 * qkv[0].numel()  # queries, keys, values, what is mixed


def test_other_formats_and_long_sequences_are_torchs():
    short, long = drawn(SHAPES[1])[0], drawn((1, 1, 1, TORCHS_LENGTH, 8))[0]
    for qkv in ([x.detach().float().requires_grad_() for x in short], long):
        assert attend(*qkv).grad_fn.name().startswith("ScaledDotProduct")
