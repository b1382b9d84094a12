import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.comm.kernels import source
from raymega.layout.shard_box import Box, uncovered
from raymega.train.fingerprint import FILE, fingerprint
from tests.comm.ptx import ptx_of

SHAPE = (7, 10)
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MASK = (1 << 64) - 1


def values(shape: tuple[int, ...] = SHAPE, *, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def of(tensor: torch.Tensor, box: Box | None = None) -> int:
    """The fingerprint of a part of `tensor`, read where it lies."""
    shape = tuple(tensor.shape)
    box = box or Box.whole(shape)
    return fingerprint(tensor[box.within(Box.whole(shape))], box=box, shape=shape)


def mixed(counter: int) -> int:
    x = (counter + 1) * 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def by_hand(tensor: torch.Tensor) -> int:
    """Element by element, in whole numbers."""
    bits = tensor.numpy().view(np.int32)
    at = np.ndindex(*bits.shape)
    return sum(int(bits[r, c]) * ((mixed(2 * r) & ~1) ^ (mixed(2 * c + 1) | 1)) for r, c in at) & MASK


def test_it_is_what_whole_numbers_give():
    assert of(values()) == by_hand(values())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_parts_of_any_cut_add_up_to_the_whole(data: st.DataObject):
    whole = Box.whole(SHAPE)
    offsets = tuple(data.draw(st.integers(0, size - 1)) for size in SHAPE)
    sizes = tuple(data.draw(st.integers(1, size - o)) for size, o in zip(SHAPE, offsets, strict=True))
    boxes = [Box(offsets, sizes), *uncovered(whole, by=[Box(offsets, sizes)])]
    assert sum(of(values(), box) for box in boxes) % (1 << 64) == of(values())


def test_large_tensors_are_read_in_parts():
    large = values((300, 1000))
    rows = [Box((a, 0), (b - a, 1000)) for a, b in pairwise([0, 1, 70, 300])]
    assert sum(of(large, box) for box in rows) % (1 << 64) == of(large)


@pytest.mark.parametrize("bit", range(32))
def test_each_bit_shows(bit: int):
    flipped = values()
    flipped.view(torch.int32)[4, 5] ^= (1 << bit) - (1 << 32 if bit == 31 else 0)
    assert of(flipped) != of(values())


@pytest.mark.parametrize("change", [lambda x: x.flip(0), lambda x: x.flip(1), lambda x: x.roll(1, 0), torch.neg])
def test_what_stands_elsewhere_or_differs_shows(change):
    assert of(change(values())) != of(values())


def test_rows_and_columns_are_not_exchangeable():
    square = values((8, 8))
    assert of(square) != of(square.T.contiguous())


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4)])
def test_any_number_of_dimensions_will_do(shape: tuple[int, ...]):
    x = values(shape)
    whole = Box.whole(shape)
    parts = whole.cut(max_elements=max(1, math.prod(shape) // 2))
    assert sum(of(x, box) for box in parts) % (1 << 64) == of(x)


def test_the_element_type_counts_by_its_bits():
    assert of(values().bfloat16()) != of(values().half())
    assert of(values().double()) == of(values().double().clone())


SPECIAL = torch.tensor([torch.nan, -torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-45, 1.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_it_is_of_bits_whatever_they_say(dtype: torch.dtype):
    special = SPECIAL.to(dtype)
    assert of(special) == of(special.clone())
    singles = [of(x[None]) for x in special]
    assert len(set(singles)) == len({int(x) for x in special.view(BITS[dtype.itemsize])})


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_nothing_adds_nothing(shape: tuple[int, ...]):
    assert of(torch.empty(shape)) == 0


def test_bytes_count_as_they_stand():
    assert of(torch.tensor([255, 1], dtype=torch.uint8)) == 255 * of(torch.tensor([1, 0], dtype=torch.uint8)) + of(
        torch.tensor([0, 1], dtype=torch.uint8)
    ) & MASK  # fmt: skip


def test_the_kernels_compile_to_ptx(tmp_path: Path):
    ptx = ptx_of(source(FILE), folder=tmp_path)
    assert all(f".entry fingerprint_{size}(" in ptx for size in BITS)
    assert ptx.count("add.u64") >= len(BITS)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16, torch.float64])
def test_a_gpu_gives_the_bits_of_the_cpu(dtype: torch.dtype):
    pytest.importorskip("cupy")
    for shape in (SHAPE, (300, 1000), (2, 3, 4), (5,), (), (0, 4)):
        tensor = (values(shape) * 100).to(dtype)
        assert of(tensor.cuda()) == of(tensor)
    part = Box((1, 2), (5, 7))
    assert of(values().cuda(), part) == of(values(), part)
