"""How moves travel: parts of boxes in parcels of bounded size, in one order that everybody keeps.

    moves    w0 -> w2   wq 0:4  wk 0:8  norm        in all kinds of state
    parcels  w0 -> w2   [wq 0:4 param | exp_avg | exp_avg_sq | wk 0:2 ...]  [wk 2:8 ... | norm ...]
    order    first parcels of all pairs, then their second ones, and so on

A worker handles its own parcels in that order, a few at a time. The first parcel that is not through has both its ends
at it, so nobody waits in a circle. Pairs that share no worker stand together, and go at the same time.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from raymega.layout.reshard import Move
from raymega.layout.shard_box import Box
from raymega.plan.plan import WorkerId

Pair = tuple[WorkerId, WorkerId]
"""Two workers, in the order of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`box` of one kind of state of one tensor."""

    name: str
    kind: str
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What travels as one message. `index` counts those from `source` to `receiver`."""

    source: WorkerId
    receiver: WorkerId
    index: int
    parts: tuple[Part, ...]

    @property
    def pair(self) -> Pair:
        return pair_of(self.source, self.receiver)

    @property
    def num_elements(self) -> int:
        return sum(part.box.num_elements for part in self.parts)


def pair_of(one: WorkerId, other: WorkerId) -> Pair:
    """The pair of two workers."""
    return (one, other) if one < other else (other, one)


def parcels(moves: Iterable[Move], *, me: WorkerId, kinds: tuple[str, ...], max_elements: int) -> tuple[Parcel, ...]:
    """Pack what `me` sends and receives into parcels of at most `max_elements`, in the order in which to handle them.

    Args:
        moves: of all workers; the order follows from all of them.
        kinds: kinds of state, each of which moves.
    """
    routes: dict[tuple[WorkerId, WorkerId], list[Move]] = {}
    for move in moves:
        routes.setdefault((move.source, move.receiver), []).append(move)
    rounds = rounds_of({pair_of(*route) for route in routes})
    packed = [
        Parcel(source=source, receiver=receiver, index=index, parts=parts)
        for (source, receiver), found in routes.items()
        if me in (source, receiver)
        for index, parts in enumerate(_packed(_parts(found, kinds, max_elements), max_elements=max_elements))
    ]
    return tuple(sorted(packed, key=lambda p: (p.index, rounds[p.pair], p.source, p.receiver)))


def rounds_of(pairs: Collection[Pair]) -> Mapping[Pair, int]:
    """A round for each pair, such that no worker is in two pairs of one round; few rounds."""
    busy: dict[WorkerId, set[int]] = {}
    found: dict[Pair, int] = {}
    for one, other in sorted(pairs):
        taken = busy.setdefault(one, set()) | busy.setdefault(other, set())
        found[one, other] = turn = next(turn for turn in count() if turn not in taken)
        busy[one].add(turn)
        busy[other].add(turn)
    return found


def _parts(moves: Iterable[Move], kinds: tuple[str, ...], max_elements: int) -> Iterator[Part]:
    for move in moves:
        for kind in kinds:
            for box in move.box.cut(max_elements=max_elements):
                yield Part(name=move.name, kind=kind, box=box)


def _packed(parts: Iterable[Part], *, max_elements: int) -> Iterator[tuple[Part, ...]]:
    """Parts in their order, as many together as fit."""
    together: list[Part] = []
    size = 0
    for part in parts:
        if together and size + part.box.num_elements > max_elements:
            yield tuple(together)
            together, size = [], 0
        together.append(part)
        size += part.box.num_elements
    if together:
        yield tuple(together)
