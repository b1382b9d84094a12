"""REDUCE: from what each worker accumulated to the gradient of the whole batch, out of place.

    accumulators --copy--> reduced --team: parts--> --ring: replicas--> --tied ends--> what the optimizer reads
    (stay intact)

A reduction that breaks is done again from the accumulators. Sums have the same bits on all members of a group, and the
order is fixed by the plan. Nothing divides: the one divisor of the loss was applied when the backward began.
"""

from collections.abc import Callable, Iterable

import torch

from raymega.comm.group import Group, Work
from raymega.worker.state import Chunk, TrainState
from raymega.worker.world import World


def reduce_gradients(state: TrainState, *, world: World, begins: Callable[[int], None], full: bool = False) -> None:
    """Fill every chunk's `reduced`; `begins` is told the number of each sum. `full`: with all that was not sent yet.

    Raises: GroupBroken or CollectiveTimeout if someone is lost; `reduced` is then void.
    """
    summed = [chunk for chunk in state.chunks.values() if chunk.reduced is not None]
    for chunk in summed:  # the accumulators stay as they are: a sum that breaks is made again from them
        chunk.reduced_grad.copy_(chunk.model.flat.grad)
        chunk.model.sum_partial_grads(out=chunk.reduced_grad)
    sums = []
    for number, chunk in enumerate(summed):
        begins(number)
        sums.append(_start_sum(chunk, ring=world.ring, scale=state.scale.scale, full=full))
    for work in sums:
        work.wait()
    _sum_tied(summed, world=world)


def _start_sum(chunk: Chunk, *, ring: Group, scale: float, full: bool) -> Work:
    grad = chunk.reduced_grad
    if chunk.coding is None:
        return ring.start_all_reduce(grad)
    stretch = 0, grad.numel()
    return chunk.coding.start_sum(grad, stretch=stretch, ring=ring, scale=scale, full=full, out=grad)


def _sum_tied(chunks: Iterable[Chunk], *, world: World) -> None:
    """Both ends of the pipeline hold a tied matrix; its gradient is the sum of its two uses, once a step."""
    views = [c.model.tied.view(c.reduced_grad) for c in chunks if c.model.tied is not None]
    if not views:
        return
    total = torch.stack(views).sum(0) if len(views) > 1 else views[0].clone()
    if not _speaks_for_its_end(world):
        total.zero_()
    world.tied.all_reduce(total)
    for view in views:
        view.copy_(total)


def _speaks_for_its_end(world: World) -> bool:
    """After the ring, all holders at one end have the same sum: one of the group adds it."""
    coords = [world.plan.coord_of(member) for member in world.tied.spec.members]
    return world.coord.replica == min(coord.replica for coord in coords if coord.stage == world.coord.stage)
