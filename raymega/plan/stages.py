"""Layers -> stages, balanced; uneven where they do not divide.

    30 layers on 4 stages             8 8 7 7
    the same, loss as 2 layers        8 8 8 6         a heavy end holds fewer layers
    stage 1 on devices half as fast   9 4 9 8         and a slow stage too

The slowest stage sets the pace, so the largest load is made as small as it can be: equal layers, each to the stage
whose load it makes least, have a smaller largest load than any other way.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from itertools import accumulate, pairwise

from raymega.config.fault import counted, does
from raymega.errors import ConfigError

Layers = tuple[tuple[int, int], ...]
"""(first, end) of the blocks of each virtual stage, half-open; covers all blocks once."""


def balanced_layers(
    num_layers: int, *, num_stages: int, embedding_weight: float = 0.0, loss_weight: float = 0.0
) -> Layers:
    """Cut `num_layers` blocks into `num_stages` consecutive parts of at least one, with the smallest largest load.

    Args:
        embedding_weight: cost of the embedding, on the first stage, in layers.
        loss_weight: cost of the output head and the loss, on the last stage, in layers.
    Raises:
        ConfigError: there are fewer layers than stages.
    """
    if num_layers < num_stages:
        raise ConfigError(
            f"{counted(num_stages, noun='stage')} {does(num_stages, verb='need')} at least "
            f"{counted(num_stages, noun='layer')}; the model has {num_layers}. "
            f"Lower pipeline_model_parallel_size to {num_layers} or less.",
            num_layers=num_layers,
            num_stages=num_stages,
        )
    extra = [0.0] * num_stages
    extra[0] += embedding_weight
    extra[-1] += loss_weight
    counts = balanced_counts(num_layers, layer_s=[1.0] * num_stages, extra_s=extra)
    assert counts is not None, "without a limit every stage holds as many as it is given"
    return layers_of_counts(counts)


def balanced_counts(
    num_layers: int, *, layer_s: Sequence[float], extra_s: Sequence[float], most: Sequence[int] | None = None
) -> tuple[int, ...] | None:
    """Layers of each stage, at least one, with the smallest largest load; ties go to the earlier stage.

    Args:
        layer_s: what a layer costs on each stage.
        extra_s: what else each stage has to do.
        most: layers that each stage can hold; default: no limit.
    Returns: None if the stages cannot hold them all.
    """
    room = list(most) if most is not None else [num_layers] * len(layer_s)
    if min(room) < 1 or sum(room) < num_layers or num_layers < len(room):
        return None
    counts = [1] * len(room)
    heap = [(extra + 2 * cost, stage) for stage, (cost, extra) in enumerate(zip(layer_s, extra_s, strict=True))]
    heapify(heap)
    for _ in range(num_layers - len(room)):
        while counts[heap[0][1]] >= room[heap[0][1]]:
            heappop(heap)
        stage = heap[0][1]
        counts[stage] += 1
        heapreplace(heap, (extra_s[stage] + (counts[stage] + 1) * layer_s[stage], stage))
    return tuple(counts)


def layers_of_counts(counts: tuple[int, ...]) -> Layers:
    """Blocks of each stage from how many it holds, as a config's `layers_per_stage` says."""
    return tuple(pairwise(accumulate(counts, initial=0)))
