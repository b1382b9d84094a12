"""Which stretches of a chunk's gradients are summed at once, and when the last backward has no more to add to them.

    flat buffer   [ embedding | block 0 | block 1 | block 2 | block 3 | head ]  [ norms, biases ]
    buckets       [     at the end      |      early 1      |    early 0     ]  [  at the end   ]
                                                                 <--- backward

A backward comes to the last layers first, so buckets are filled from the end: an early one can travel while the
backward of the layers before it runs. What is complete only at its end is summed then: what the first part needs, and
the small vectors behind the matrices. Gradients that a team adds up before come last of all.
Source: Li et al. 2020 (arXiv 2006.15704), section 3.2.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from raymega.model.flat_params import FlatParams
from raymega.worker.state import TrainState

BUCKET_BYTES = 4 << 20  # a guess: what a sum costs whatever its size is then small beside the rest
MOST_UNDERWAY = 16  # a guess: 64 MiB of pieces on their way, and as much again where they come together
ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The stretch [start, end) of the flat buffers of the chunk `stage`.

    Args:
        part: it is complete once the last backward has passed this part of the stage, 0 at its end; None: once a team
            has added up what its shards have.
    """

    stage: int
    start: int
    end: int
    part: int | None

    @property
    def num_bytes(self) -> int:
        return ELEMENT_BYTES * (self.end - self.start)


def buckets_of(state: TrainState, *, bucket_bytes: int) -> tuple[Bucket, ...]:
    """Buckets of all chunks whose gradients somebody shares, in the order in which all holders begin their sums."""
    found = [
        bucket
        for stage, chunk in state.chunks.items()
        if chunk.is_summed
        for bucket in chunk_buckets(
            chunk.model.flat, first_use=chunk.model.first_use, stage=stage, bucket_bytes=bucket_bytes
        )
    ]
    return tuple(sorted(found, key=_turn))


def chunk_buckets(
    flat: FlatParams, *, first_use: Mapping[str, int], stage: int, bucket_bytes: int
) -> tuple[Bucket, ...]:
    """Buckets of one chunk, from the end of its flat buffer; they cover it, each element once."""
    at_end = None if any(param.partial for param in flat.params) else 0
    pieces = _pieces(flat, first_use=first_use, stage=stage, at_end=at_end)
    whole = (bucket for run in _runs(pieces) for bucket in _whole(run, bucket_bytes=bucket_bytes, at_end=at_end))
    return tuple(_joined(whole))


def _turn(bucket: Bucket) -> tuple[bool, int, int, int]:
    """The last chunk and the last parts first, what a team adds up at the end."""
    return bucket.part is None, -bucket.stage, -(bucket.part or 0), -bucket.start


def _pieces(flat: FlatParams, *, first_use: Mapping[str, int], stage: int, at_end: int | None) -> Iterator[Bucket]:
    """One for each parameter, the last first, with the padding behind it."""
    end = flat.grad.numel()
    for param in reversed(flat.params):
        start = param.start if param is not flat.params[0] else 0
        is_early = param.spec.decays and not param.partial
        part = first_use.get(param.spec.name, 0) if is_early else 0  # vectors stand apart, behind the matrices
        yield Bucket(stage=stage, start=start, end=end, part=part or at_end)
        end = start


def _runs(pieces: Iterable[Bucket]) -> Iterator[list[Bucket]]:
    """Neighbours that are all early, or all late."""
    run: list[Bucket] = []
    for piece in pieces:
        if run and _is_early(run[-1]) != _is_early(piece):
            yield run
            run = []
        run.append(piece)
    yield run


def _is_early(bucket: Bucket) -> bool:
    return bucket.part is not None and bucket.part > 0


def _whole(run: list[Bucket], *, bucket_bytes: int, at_end: int | None) -> Iterator[Bucket]:
    """Early pieces, joined until they are worth a sum; what is left is not."""
    bucket: Bucket | None = None
    for piece in run:
        bucket = piece if bucket is None else _join(bucket, piece)
        if _is_early(bucket) and bucket.num_bytes >= bucket_bytes:
            yield bucket
            bucket = None
    if bucket is not None:
        yield replace(bucket, part=at_end)


def _joined(buckets: Iterable[Bucket]) -> Iterator[Bucket]:
    """Late neighbours joined."""
    last: Bucket | None = None
    for bucket in buckets:
        if last is not None and not _is_early(last) and not _is_early(bucket):
            last = _join(last, bucket)
            continue
        if last is not None:
            yield last
        last = bucket
    if last is not None:
        yield last


def _join(later: Bucket, earlier: Bucket) -> Bucket:
    parts = [bucket.part for bucket in (later, earlier) if bucket.part is not None]
    return replace(later, start=earlier.start, part=min(parts, default=None))
