"""Layers -> stages, balanced; uneven where they do not divide.

    30 layers on 4 stages       8 8 7 7
    the same, loss as 2 layers  8 8 8 6         a heavy end holds fewer layers

The slowest stage sets the pace, so the largest load is made as small as it can be.
"""

from itertools import accumulate, pairwise

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
            f"{num_stages} stages need at least {num_stages} layers; the model has {num_layers}. "
            f"Lower pipeline_model_parallel_size to {num_layers} or less.",
            num_layers=num_layers,
            num_stages=num_stages,
        )
    counts = [1] * num_stages
    loads = [1.0] * num_stages
    loads[0] += embedding_weight
    loads[-1] += loss_weight
    # Equal items, each to the least loaded: no other way has a smaller largest load. Ties go to the earlier stage.
    for _ in range(num_layers - num_stages):
        lightest = loads.index(min(loads))
        counts[lightest] += 1
        loads[lightest] += 1
    return layers_of_counts(tuple(counts))


def layers_of_counts(counts: tuple[int, ...]) -> Layers:
    """Blocks of each stage from how many it holds, as a config's `layers_per_stage` says."""
    return tuple(pairwise(accumulate(counts, initial=0)))
