"""Gradients that come in parts: each holder has seen its own heads or its own positions, and the sum counts.

    norm weights, row biases        under sequence parallelism, each shard sees T/tp positions
    q/k norm weights                each shard sees its heads
    replicated kv heads             neighbours hold one kv head, each sees its own queries

    team buffer   [ q_norm | k_norm | wk, all kv heads | wv, all kv heads ]      one all-reduce for all of them
                                      each shard adds at its own head's rows

The sum is written beside the accumulators, never into them: they stay whole if the reduction breaks.
"""

from collections.abc import Iterable, Sequence
from math import prod

from torch import Tensor

from raymega.layout.shard_box import Box
from raymega.model.flat_params import LocalParam
from raymega.model.tp_team import Team


def sum_partial_grads(params: Sequence[LocalParam], *, out: Tensor, team: Team) -> None:
    """Write the team's sum of each partial gradient to its place in `out`, a flat buffer; touch nothing else there.

    All members of the team call it together, and get the same bits.
    """
    partial = [param for param in params if param.partial]
    if not partial:
        return
    buffer = out.new_zeros(sum(prod(param.spec.shape) for param in partial))
    for param, place in _places(partial, buffer):
        place.copy_(param.grad)
    team.sum_(buffer)
    for param, place in _places(partial, buffer):
        param.view(out).copy_(place)


def _places(partial: Iterable[LocalParam], buffer: Tensor) -> Iterable[tuple[LocalParam, Tensor]]:
    start = 0
    for param in partial:
        shape = param.spec.shape
        whole = buffer[start : start + prod(shape)].view(shape)
        yield param, whole[param.box.within(Box.whole(shape))]
        start += prod(shape)
