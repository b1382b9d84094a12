"""How well a model that knows only how often each id occurs would do: the first mark that training has to pass.

H = - sum_i p_i ln p_i     in nats per token, p_i = share of id i among the trained targets (Shannon 1948)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def count_targets(ids: NDArray[Any], *, mask: NDArray[np.bool_], vocab_size: int) -> NDArray[np.int64]:
    """[vocab_size]: how often each id is a trained target of rows ids [N, seq_len + 1], mask [N, seq_len]."""
    targets = ids[:, 1:]
    return np.bincount(targets.reshape(-1) if mask.all() else targets[mask], minlength=vocab_size)


def unigram_entropy(counts: NDArray[np.int64]) -> float:
    """The entropy in nats of ids that occur `counts` times; 0.0 where there are none."""
    seen = counts[counts > 0] / max(1, counts.sum())
    return float(-(seen * np.log(seen)).sum())
