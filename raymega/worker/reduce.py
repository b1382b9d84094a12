"""REDUCE: from what each worker accumulated to the gradient of the whole batch, out of place.

    accumulators --team: parts--> --ring: replicas--> reduced --tied ends--> what the optimizer reads
    (stay intact)

    backward   [ block 3 | block 2 | block 1 | block 0 ]
    ring                 [  sum of 3, 2  ]   [  sum of the rest  ]     begun as soon as nothing is added any more

All holders begin the same sums in the same order, early or not, so the bits are the same. A reduction that breaks is
done again from the accumulators, and breaks no backward: that goes on, and what broke is told at its end. Nothing
divides: the one divisor of the loss was applied when the backward began.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch

from raymega.comm.group import Work
from raymega.errors import ClusterError
from raymega.worker.buckets import MOST_UNDERWAY, Bucket
from raymega.worker.chunk import Chunk
from raymega.worker.scatter import PieceSum, copy_to_mirrors, sum_tied_pieces
from raymega.worker.state import TrainState
from raymega.worker.world import World


class GradientSums:
    """The sums of one step. `begins`: told the number of each as it begins; `full`: with all that was not sent yet."""

    def __init__(
        self, state: TrainState, *, world: World, buckets: Sequence[Bucket], begins: Callable[[int], None],
        full: bool = False,
    ) -> None:  # fmt: skip
        self._state, self._world, self._begins, self._full = state, world, begins, full
        self._left = deque(buckets)
        self._passed: dict[int, int] = {}
        self._works: deque[Work] = deque()
        self._begun = 0
        self._with_partial: dict[int, torch.Tensor] = {}
        self._first_s: float | None = None
        self._broken: ClusterError | None = None

    def passed(self, stage: int, part: int) -> None:
        """The last backward of a chunk has passed `part`: begin what is complete now, in the order of all."""
        self._passed[stage] = part
        try:
            while self._broken is None and self._left and self._is_complete(self._left[0]) and self._has_room:
                self._begin(self._left[0])
        except ClusterError as error:  # the backward goes on: what it adds is kept, whatever became of the sums
            self._broken = error

    def begun_before(self, now: float) -> tuple[tuple[float, float], ...]:
        """The stretch up to `now`, by `time.perf_counter`, since the first sum began; empty if none has."""
        return ((self._first_s, now),) if self._first_s is not None and self._first_s < now else ()

    def finish(self) -> None:
        """Begin what is left, and fill every chunk's `reduced`, or its pieces'.

        Raises: GroupBroken or CollectiveTimeout if someone is lost; what was reduced is then void.
        """
        if self._broken is not None:
            raise self._broken
        self._sum_partial()
        while self._left:
            if not self._has_room:
                self._works.popleft().wait()
            self._begin(self._left[0])
        while self._works:
            self._works.popleft().wait()
        summed = [chunk for chunk in self._state.chunks.values() if chunk.is_summed]
        if self._state.is_cut:
            sum_tied_pieces(summed, world=self._world)
            copy_to_mirrors(self._state, world=self._world)
        else:
            _sum_tied(summed, world=self._world)

    def _begin(self, bucket: Bucket) -> None:
        chunk = self._state.chunks[bucket.stage]
        self._begins(self._begun)
        self._first_s = self._first_s or time.perf_counter()
        source = chunk.model.flat.grad if bucket.part is not None else self._with_partial[bucket.stage]
        self._works.append(self._start(chunk, bucket, source=source))
        self._left.popleft()
        self._begun += 1

    def _start(self, chunk: Chunk, bucket: Bucket, *, source: torch.Tensor) -> Work:
        ring, out = self._world.ring, chunk.reduced_grad
        if chunk.is_cut:
            return PieceSum(chunk, bucket=bucket, world=self._world).start(source)
        if chunk.coding is None:
            return ring.start_all_reduce(source[bucket.start : bucket.end], out=out[bucket.start : bucket.end])
        return chunk.coding.start_sum(
            source,
            stretch=(bucket.start, bucket.end),
            ring=ring,
            scale=self._state.scale.scale,
            full=self._full,
            out=out,
        )

    @property
    def _has_room(self) -> bool:
        """Pieces travel in buffers of their own, of which there are so many."""
        return not self._state.is_cut or len(self._works) < MOST_UNDERWAY

    def _is_complete(self, bucket: Bucket) -> bool:
        passed = self._passed.get(bucket.stage)
        return passed is not None and bucket.part is not None and bucket.part >= passed

    def _sum_partial(self) -> None:
        """What a team adds up, it adds up before the replicas do, beside the accumulators."""
        partial = {stage: chunk for stage, chunk in self._state.chunks.items() if chunk.model.has_partial_grads}
        for stage, chunk in partial.items():
            out = self._with_partial[stage] = (
                torch.empty_like(chunk.model.flat.grad) if chunk.is_cut else chunk.reduced_grad
            )
            for bucket in self._left:
                if bucket.stage == stage and bucket.part is None:
                    stretch = slice(bucket.start, bucket.end)
                    out[stretch].copy_(chunk.model.flat.grad[stretch])
            chunk.model.sum_partial_grads(out=out)


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
