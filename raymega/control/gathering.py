"""With a sharded optimizer a decided step is whole only once all boxes are gathered: from whom, if some are lost?

    reduced shard of box b    owner w3, mirror w7        DECIDE needs both to have it, bytes copied, never summed again
    w3 dies before the gather                            w7 applies the same bytes with the same kernel: b comes from w7
    w3 and w7 die, or there is no mirror                 b is replayed: its state of the step before, and the logs

The gather may be begun again from whoever is left; what was gathered before is the same bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from raymega.plan.plan import WorkerId

Box = TypeVar("Box")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather(Generic[Box]):
    """Who gives each box; `replayed`: boxes whose reduced shard is gone with all its holders."""

    sources: Mapping[Box, WorkerId]
    replayed: tuple[Box, ...]


def gather(holders: Mapping[Box, Sequence[WorkerId]], *, living: Collection[WorkerId]) -> Gather[Box]:
    """Choose the source of each box of a decided step.

    Args:
        holders: the owner, then the mirror if there is one: those who had the reduced shard when they decided.
    """
    sources = {
        box: next(worker for worker in workers if worker in living)
        for box, workers in holders.items()
        if any(worker in living for worker in workers)
    }
    return Gather(sources=sources, replayed=tuple(box for box in holders if box not in sources))
