"""Random bits without a state: bits = mix(key + index), the same wherever and in whatever order they are drawn.

The mixer is the last part of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), on
int64 tensors whose products wrap. Keys are hashes of text, so streams of different names do not meet.
"""

import hashlib

import torch
from torch import Tensor

STEP = -7046029254386353131  # 0x9E3779B97F4A7C15: the golden ratio's odd 64-bit fraction, signed
_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)  # 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key_of(*words: str | int) -> int:
    """A signed 64-bit key of the words."""
    text = "\x1f".join(str(word) for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def bits_at(keys: Tensor, indices: Tensor) -> Tensor:
    """64 random bits of each (key, index), as int64; `keys` and `indices` broadcast."""
    return mix_(indices * STEP + keys)


def mix_(x: Tensor) -> Tensor:
    """Mix int64 in place; each output bit hangs on each input bit."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x.bitwise_xor_(_shifted(x, shift)).mul_(multiplier)
    return x.bitwise_xor_(_shifted(x, 31))


def _shifted(x: Tensor, count: int) -> Tensor:
    """Shift right, filling with zeros (torch's own shift copies the sign)."""
    return (x >> count).bitwise_and_((1 << (64 - count)) - 1)


def scalar_key(key: int, *, device: torch.device) -> Tensor:
    """A key as a tensor."""
    return torch.tensor(key, dtype=torch.int64, device=device)
