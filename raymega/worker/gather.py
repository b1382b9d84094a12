"""GATHER: whole weights from the pieces of the optimizer state, after it was updated, loaded or moved.

    ring      replica 0: piece 0 | replica 1: piece 1        who speaks for a piece sends it, rounded as weights are
    weights   [ rows of 0 | rows of 1 ] of every parameter   vectors in fp32

Weights are derived: nothing here changes the state. A gather that breaks is done again, from whoever speaks for the
pieces then. Where the state is not cut there is nothing to do.
"""

from collections.abc import Iterable

import torch

from raymega.worker.chunk import Chunk
from raymega.worker.pieces import PieceLayout, Rows
from raymega.worker.state import TrainState
from raymega.worker.world import World


def complete(state: TrainState, *, world: World) -> None:
    """Gather if someone in the ring has no whole weights; all its members call it together."""
    if not state.is_cut:
        return
    is_whole = all(chunk.is_whole for chunk in state.chunks.values())
    if b"n" in world.ring.all_gather_bytes(b"y" if is_whole else b"n"):
        gather(state, world=world)


def gather(state: TrainState, *, world: World) -> None:
    """Make whole weights of the pieces; all members of the ring call it together.

    Raises: GroupBroken or CollectiveTimeout if someone is lost; weights are then void, and the state is as it was.
    """
    for _, chunk in sorted(state.chunks.items()):
        flat = chunk.model.flat
        _gather(chunk, world=world, decays=True, into=flat.weights, first=0)
        _gather(chunk, world=world, decays=False, into=flat.data, first=flat.weights.numel() - flat.data.numel())
        flat.cast()
        chunk.is_whole = True


def _gather(chunk: Chunk, *, world: World, decays: bool, into: torch.Tensor, first: int) -> None:
    """Rows that decay, or that do not, to `into`, whose element 0 is element `first` of the flat buffers."""
    data = {held.index: held.data for held in chunk.pieces}
    rows = [[(p, r) for p in spoken for r in _of(chunk.layouts[p], decays)] for spoken in world.speakers]
    width = max(sum(r.box.num_elements for _, r in some) for some in rows)
    if width == 0:
        return
    mine = torch.zeros(width, dtype=into.dtype, device=into.device)
    _copy((r.line(data[p]) for p, r in rows[world.ring.rank]), to=_parts(mine, rows[world.ring.rank]))
    everyones = mine.new_empty(world.ring.size, width)  # [members, elements of the largest part]
    world.ring.all_gather(everyones, mine)
    for line, some in zip(everyones, rows, strict=True):
        places = (into[r.first - first : r.first - first + r.box.num_elements] for _, r in some)
        _copy(_parts(line, some), to=places)


def _of(layout: PieceLayout, decays: bool) -> Iterable[Rows]:
    return (rows for rows in layout.rows if rows.spec.decays == decays)


def _parts(line: torch.Tensor, rows: Iterable[tuple[int, Rows]]) -> tuple[torch.Tensor, ...]:
    """`line` cut into those rows, one after the other."""
    sizes = [r.box.num_elements for _, r in rows]
    return line[: sum(sizes)].split(sizes)


@torch.no_grad()
def _copy(parts: Iterable[torch.Tensor], *, to: Iterable[torch.Tensor]) -> None:
    for part, place in zip(parts, to, strict=True):
        place.copy_(part)
