"""A worker's part of the global gradient norm: each element of the model counted once, in fp64.

    norm^2 = sum over workers of (sum over counted ranges of g^2)

Copies (replicated over the team, tied, other replicas) are left out by the ranges; padding in them is zero.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


def sum_of_squares(grad: Tensor, *, ranges: Iterable[tuple[int, int]]) -> float:
    """Sum of g^2 over half-open `ranges` of a flat gradient; inf or nan if any element is."""
    norms = (torch.linalg.vector_norm(grad[start:end], dtype=torch.float64) for start, end in ranges)
    return sum((norm.item() ** 2 for norm in norms), start=0.0)
