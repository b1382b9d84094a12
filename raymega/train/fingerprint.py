"""A fingerprint of a box of state: a number that does not hang on how the tensor is cut, or in what order it is read.

    value = sum over elements of bits(element) x key(row, column)   mod 2^64       key = row key ^ column key, odd

Rows and columns are those of the whole tensor, so the fingerprints of disjoint boxes add up to that of their union, and
an element in another place counts otherwise. One bit that differs always shows, since keys are odd; anything else goes
unseen about once in 2^32. The arithmetic is that of integers, so torch and the CUDA kernel (`fingerprint.cu`, one pass,
where CuPy is installed) give the same.
Sources: Lemire and Kaser 2014 (arXiv 1202.4961), multilinear hashing; Patrascu and Thorup 2012, tabulation.
"""

import numpy as np
import torch
from torch import Tensor

from raymega.comm.kernels import THREADS, has_cupy, launch
from raymega.layout.shard_box import Box

FILE = "train/fingerprint.cu"
MOST_BLOCKS = 2048  # a guess: they fill a GPU, and each of their sums is added up one after the other
CHUNK_ELEMENTS = 1 << 16  # of products at a time: 512 KiB
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element
_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # SplitMix64's


def fingerprint(tensor: Tensor, *, box: Box, shape: tuple[int, ...]) -> int:
    """The fingerprint of `tensor`, which is `box` of a whole tensor of `shape`; its last dimension has stride 1."""
    if not tensor.numel():
        return 0
    bits = tensor.detach().view(_BITS[tensor.element_size()])
    bits = bits.reshape(-1, box.sizes[-1] if box.sizes else 1)  # [rows, columns]
    rows, columns = _keys(box, shape=shape, device=tensor.device)
    if bits.is_cuda and has_cupy():
        return _by_kernel(bits, rows=rows, columns=columns)
    step = max(1, CHUNK_ELEMENTS // max(1, bits.shape[1]))
    products = torch.empty(min(step, bits.shape[0]), bits.shape[1], dtype=torch.int64, device=tensor.device)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for first in range(0, bits.shape[0], step):
        part = bits[first : first + step]
        keys = torch.bitwise_xor(rows[first : first + step, None], columns, out=products[: part.shape[0]])
        total += keys.mul_(part).sum()
    return int(total) % (1 << 64)


def _by_kernel(bits: Tensor, *, rows: Tensor, columns: Tensor) -> int:
    """One pass over memory; `bits` [rows, columns] on a GPU."""
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    blocks = min(-(-bits.numel() // THREADS), MOST_BLOCKS)
    launch(
        FILE, f"fingerprint_{bits.element_size()}", bits, rows, columns, bits.numel(), bits.shape[1], bits.stride(0),
        total, blocks=blocks,
    )  # fmt: skip
    return int(total) % (1 << 64)


def _keys(box: Box, *, shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Keys of the rows of the box, even, and of its columns, odd; a row is all dimensions but the last."""
    row = np.zeros(1, dtype=np.uint64)
    for offset, size, length in zip(box.offsets[:-1], box.sizes[:-1], shape[:-1], strict=True):
        along = np.arange(offset, offset + size, dtype=np.uint64)
        row = (row[:, None] * np.uint64(length) + along).reshape(-1)
    first, width = (box.offsets[-1], box.sizes[-1]) if shape else (0, 1)
    column = np.arange(first, first + width, dtype=np.uint64)
    row_keys = _mixed(row * np.uint64(2)) & ~np.uint64(1)
    column_keys = _mixed(column * np.uint64(2) + np.uint64(1)) | np.uint64(1)
    return _to(device, row_keys), _to(device, column_keys)


def _mixed(counters: np.ndarray) -> np.ndarray:
    """64 bits of each counter, each of which hangs on all of its bits."""
    x = (counters + np.uint64(1)) * np.uint64(_GOLDEN)
    for shift, multiplier in _ROUNDS:
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(multiplier)
    return x ^ (x >> np.uint64(31))


def _to(device: torch.device, keys: np.ndarray) -> Tensor:
    return torch.from_numpy(keys.view(np.int64)).to(device)
