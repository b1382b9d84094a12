"""GATHER: whole weights from the pieces of the optimizer state, after it was updated, loaded or moved.

    ring      replica 0: piece 0 | replica 1: piece 1        who speaks for a piece sends it, rounded as weights are
    weights   [ rows of 0 | rows of 1 ] of every parameter   vectors in fp32

    apply of k | forward of k+1   [ part 0 | part 1 | part 2 | part 3 ]      what a part reads is waited for before it
    ring        [ 0 ][ 1 ][ 2 ][ 3 ]

All members of the ring gather the same shares in the same order, and have ended before they sum anything. Weights are
derived: nothing here changes the state. A gather that breaks, in whatever step, is done again, from whoever speaks for
the pieces then, and gives the same bits. Where the state is not cut there is nothing to do.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from raymega.comm.group import Work
from raymega.model.flat_params import LocalParam
from raymega.worker.buckets import MOST_UNDERWAY
from raymega.worker.chunk import Chunk
from raymega.worker.pieces import Rows
from raymega.worker.state import TrainState
from raymega.worker.world import World

Lines = Sequence[tuple[int, Rows]]
"""Rows, and the piece that they are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What is gathered at once of the chunk `stage`.

    Args:
        part: the first part of the chunk that reads of it.
        decays: whether it is matrices, or the vectors.
        lines: of each member of the ring, what it sends.
    """

    stage: int
    part: int
    decays: bool
    lines: tuple[Lines, ...]

    @property
    def width(self) -> int:
        """Elements of the largest part; everyone sends so many."""
        return max(sum(rows.box.num_elements for _, rows in some) for some in self.lines)


class Weights:
    """The weights of one worker in one generation. `waits`: (start, end) of waiting for them since it was cleared."""

    def __init__(self, state: TrainState, *, world: World, bucket_bytes: int) -> None:
        self.waits: list[tuple[float, float]] = []
        self._state, self._world = state, world
        self._shares = tuple(_shares(state, world=world, bucket_bytes=bucket_bytes)) if state.is_cut else ()
        self._left = deque[Share]()
        self._underway = deque[_Gathering]()

    def begin(self) -> None:
        """Gather anew: begin with what is read first, as much as there are buffers for."""
        assert not self._underway, "weights are read in every step, so that they are whole at its end"
        self._left.extend(self._shares)
        self._fill()

    def need(self, stage: int, part: int) -> None:
        """Wait for what a part of a chunk reads.

        Raises: GroupBroken or CollectiveTimeout if someone is lost; weights are then void, and the state is as it was.
        """
        while self._underway and any(share.stage == stage and share.part <= part for share in self._open):
            self._end_one()

    def finish(self) -> None:
        """Wait for all; raises as `need` does."""
        while self._underway:
            self._end_one()

    def complete(self) -> None:
        """Gather if someone in the ring has no whole weights; all its members call it together."""
        if not self._state.is_cut:
            return
        # behind an aborted kernel weights say more than is true
        is_whole = all(chunk.is_whole and chunk.model.flat.grad.is_cpu for chunk in self._state.chunks.values())
        if b"n" in self._world.ring.all_gather_bytes(b"y" if is_whole else b"n"):
            self.begin()
            self.finish()

    @property
    def _open(self) -> Iterator[Share]:
        yield from (gathering.share for gathering in self._underway)
        yield from self._left

    def _fill(self) -> None:
        while self._left and len(self._underway) < MOST_UNDERWAY:
            share = self._left.popleft()
            self._underway.append(_Gathering(share, chunk=self._state.chunks[share.stage], world=self._world))

    def _end_one(self) -> None:
        began, gathering = time.perf_counter(), self._underway.popleft()
        gathering.wait()
        self.waits.append((began, time.perf_counter()))
        self._fill()
        stage = gathering.share.stage
        if all(share.stage != stage for share in self._open):
            self._state.chunks[stage].is_whole = True


class _Gathering:
    """A share on its way."""

    def __init__(self, share: Share, *, chunk: Chunk, world: World) -> None:
        self.share, self._flat = share, chunk.model.flat
        data = {held.index: held.data for held in chunk.pieces}
        mine, rank = self._into.new_zeros(share.width), world.ring.rank
        _copy((rows.line(data[p]) for p, rows in share.lines[rank]), to=_parts(mine, share.lines[rank]))
        self._everyones = mine.new_empty(world.ring.size, share.width)  # [members, elements of the largest part]
        self._work: Work = world.ring.start_all_gather(self._everyones, mine)

    def wait(self) -> None:
        self._work.wait()
        into, flat = self._into, self._flat
        first = 0 if self.share.decays else flat.weights.numel() - flat.data.numel()
        for line, some in zip(self._everyones, self.share.lines, strict=True):
            places = (into[r.first - first : r.first - first + r.box.num_elements] for _, r in some)
            _copy(_parts(line, some), to=places)
        if not self.share.decays:
            flat.cast()

    @property
    def _into(self) -> torch.Tensor:
        return self._flat.unseen_weights if self.share.decays else self._flat.unseen_data


def _shares(state: TrainState, *, world: World, bucket_bytes: int) -> Iterator[Share]:
    """Chunk by chunk in the order in which parts read them, the small vectors first."""
    for stage, chunk in sorted(state.chunks.items()):
        for part, params in _buckets(chunk, bucket_bytes=bucket_bytes):
            names = {param.spec.name for param in params}
            lines = tuple(
                tuple((p, rows) for p in spoken for rows in chunk.layouts[p].rows if rows.spec.name in names)
                for spoken in world.speakers
            )
            share = Share(stage=stage, part=part, decays=params[0].spec.decays, lines=lines)
            if share.width:
                yield share


def _buckets(chunk: Chunk, *, bucket_bytes: int) -> Iterator[tuple[int, list[LocalParam]]]:
    """Parameters, and the first part that reads one of them: the vectors; then matrices, so many as are worth it."""
    model = chunk.model
    vectors = [param for param in model.params if not param.spec.decays]
    if vectors:
        yield 0, vectors
    uses = {param.spec.name: model.first_use.get(param.spec.name, 0) for param in model.params}
    matrices = sorted((param for param in model.params if param.spec.decays), key=lambda param: uses[param.spec.name])
    bucket: list[LocalParam] = []
    for param in matrices:
        bucket.append(param)
        if sum(one.box.num_elements for one in bucket) * model.flat.weights.element_size() >= bucket_bytes:
            yield uses[bucket[0].spec.name], bucket
            bucket = []
    if bucket:
        yield uses[bucket[0].spec.name], bucket


def _parts(line: torch.Tensor, rows: Lines) -> tuple[torch.Tensor, ...]:
    """`line` cut into those rows, one after the other."""
    sizes = [r.box.num_elements for _, r in rows]
    return line[: sum(sizes)].split(sizes)


@torch.no_grad()
def _copy(parts: Iterable[torch.Tensor], *, to: Iterable[torch.Tensor]) -> None:
    for part, place in zip(parts, to, strict=True):
        place.copy_(part)
