"""The sum of a bucket where the optimizer state is cut: every piece is added up by the replica that speaks for it.

    replica 0   [ rows of 0 | rows of 1 ]   --\\/-->   rows of 0, of both    add up, in rank order
    replica 1   [ rows of 0 | rows of 1 ]   --/\\-->   rows of 1, of both    add up, in rank order

Each element travels once, where an all-reduce lets it travel twice; the other half is the gather of the weights. A
second holder gets a copy of the sum when all are made: nobody adds up a second time.
Source: Rajbhandari et al. 2020 (arXiv 1910.02054), section 7.
"""

from collections.abc import Iterable

import torch

from raymega.comm.group import Work
from raymega.plan.shards import holders
from raymega.worker.buckets import Bucket
from raymega.worker.chunk import Chunk
from raymega.worker.pieces import Rows
from raymega.worker.state import TrainState
from raymega.worker.world import World


class PieceSum:
    """The sum of one bucket, in flight."""

    def __init__(self, chunk: Chunk, *, bucket: Bucket, world: World) -> None:
        self._chunk, self._world = chunk, world
        self._rows = [
            [(p, r) for p in spoken for r in chunk.layouts[p].rows if bucket.start <= r.param.start < bucket.end]
            for spoken in world.speakers
        ]

    def start(self, source: torch.Tensor) -> "PieceSum":
        """Begin to sum what lies in the flat buffer `source`, which may be written again once this returns."""
        ring, sizes = self._world.ring, [sum(r.box.num_elements for _, r in some) for some in self._rows]
        sent = _joined((r.of(source) for some in self._rows for _, r in some), like=source)
        mine = sizes[ring.rank]
        self._received = source.new_empty(ring.size, mine)  # [members, elements of my rows]
        self._work: Work = ring.start_all_to_all(
            self._received.view(-1), sent, out_sizes=[mine] * ring.size, in_sizes=sizes
        )
        return self

    @torch.no_grad()
    def wait(self) -> None:
        self._work.wait()
        total, *others = self._received
        for other in others:
            total.add_(other)
        mine = self._rows[self._world.ring.rank]
        held = {piece.index: piece for piece in self._chunk.pieces}
        for part, (p, r) in zip(total.split([r.box.num_elements for _, r in mine]), mine, strict=True):
            r.line(held[p].total).copy_(part)


def copy_to_mirrors(state: TrainState, *, world: World) -> None:
    """Give the sums of pieces to their second holders."""
    plan, stage = world.plan, world.coord.stage
    if plan.shard_optimizer != "mirrored":
        return
    replicas = [plan.coord_of(member).replica for member in world.ring.spec.members]
    mine, here = world.coord.replica, world.ring.rank

    def shared(speaker: int, other: int) -> list[int]:
        return [p for p in world.speakers[speaker] if other in holders(plan, stage=stage, piece=p)]

    for _, chunk in sorted(state.chunks.items()):
        totals = {piece.index: piece.total for piece in chunk.pieces}
        give = [[] if other == mine else shared(here, other) for other in replicas]
        take = [[] if rank == here else shared(rank, mine) for rank in range(world.ring.size)]
        sent = _joined((totals[p] for some in give for p in some), like=chunk.model.flat.grad)
        places = [totals[p] for some in take for p in some]
        received = _joined(places, like=chunk.model.flat.grad)
        lengths = [layout.num_elements for layout in chunk.layouts]
        world.ring.start_all_to_all(
            received, sent, out_sizes=[sum(lengths[p] for p in some) for some in take],
            in_sizes=[sum(lengths[p] for p in some) for some in give],
        ).wait()  # fmt: skip
        for part, place in zip(received.split([lengths[p] for some in take for p in some]), places, strict=True):
            place.copy_(part)


def sum_tied_pieces(chunks: Iterable[Chunk], *, world: World) -> None:
    """The pieces of a matrix that both ends of the pipeline use: the sum of its two gradients, piece by piece."""
    ends = [(chunk, tied) for chunk in chunks if (tied := chunk.model.tied) is not None]
    if not ends:
        return
    total = torch.zeros_like(ends[0][1].grad)
    parts = [
        (_within(total, r), r.view(piece.total))
        for chunk, tied in ends
        for piece in chunk.pieces
        if piece.index in world.pieces
        for r in chunk.layouts[piece.index].rows
        if r.spec == tied.spec
    ]
    for whole, part in parts:
        whole.add_(part)
    world.tied.all_reduce(total)
    for whole, part in parts:
        part.copy_(whole)


def _within(whole: torch.Tensor, r: Rows) -> torch.Tensor:
    first = r.box.offsets[0] - r.param.box.offsets[0]
    return whole[first : first + r.box.sizes[0]]


def _joined(parts: Iterable[torch.Tensor], *, like: torch.Tensor) -> torch.Tensor:
    return torch.cat([like.new_empty(0), *parts])
