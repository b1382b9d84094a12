"""Nodes whose left-over places are joined to hold whole replicas, with as few crossings from node to node as can be.

    5 places are wanted in a row, left over are  n0 2   n1 3   n2 4   n3 1
        n1 + n0 hold one: 1 crossing       n2 + n3 hold another: 1 crossing

Replicas and nodes that share one form a graph; in a connected part of n nodes the replicas leave a node n - 1 times at
least, and a part can hold as many replicas as its places hold. So the least is over groups of nodes: n - 1 for each.
Exact for up to `EXACT_NODES` nodes with places left over; beyond, each group is the fewest of the largest, with the
smallest that completes it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TypeVar

EXACT_NODES = 10
Counts = tuple[tuple[int, int], ...]  # (places, nodes with so many), most places first
_N = TypeVar("_N")


def joined(left: Mapping[_N, int], *, size: int, wanted: int) -> list[list[_N]]:
    """Groups of nodes that together hold at least `wanted` replicas of `size` places.

    Args:
        left: places of each node, fewer than `size`.
    Returns: groups; empty if nothing is wanted. Fewer replicas than wanted if the places do not suffice.
    """
    if wanted <= 0:
        return []
    counted = Counter(places for places in left.values() if places)
    exact = counted.total() <= EXACT_NODES
    groups = _best(counted, size=size, wanted=wanted) if exact else list(_greedy(counted, size=size, wanted=wanted))
    nodes = {places: iter([node for node, has in left.items() if has == places]) for places in counted}
    return [[next(nodes[places]) for places in group] for group in groups]


def _best(counted: Counter[int], *, size: int, wanted: int) -> list[tuple[int, ...]]:
    """The groups of least cost, among all ways to group."""

    @cache
    def best(counts: Counts, missing: int) -> tuple[int, tuple[tuple[int, ...], ...]] | None:
        if missing <= 0:
            return 0, ()
        if not counts:
            return None
        options = [best(_without(counts, (counts[0][0],)), missing)]
        for group in _groups(counts, size=size):
            rest = best(_without(counts, group), missing - sum(group) // size)
            options.append(rest and (rest[0] + len(group) - 1, (group, *rest[1])))
        return min((option for option in options if option is not None), default=None)

    found = best(tuple(sorted(counted.items(), reverse=True)), wanted)
    return list(found[1]) if found is not None else []


def _groups(counts: Counts, *, size: int) -> Iterator[tuple[int, ...]]:
    """Every group with the node that has most, that holds a replica, in descending order of places."""

    def grow(group: tuple[int, ...], rest: Counts) -> Iterator[tuple[int, ...]]:
        if sum(group) >= size:
            yield group
        for places, _ in rest:
            if places <= group[-1]:
                yield from grow((*group, places), _without(rest, (places,)))

    first = counts[0][0]
    yield from grow((first,), _without(counts, (first,)))


def _without(counts: Counts, group: tuple[int, ...]) -> Counts:
    taken = Counter(group)
    return tuple((places, many - taken[places]) for places, many in counts if many > taken[places])


def _greedy(counted: Counter[int], *, size: int, wanted: int) -> Iterator[tuple[int, ...]]:
    """Small groups as long as what they waste can be spared; then all that is left in one row."""
    rest = Counter(counted)
    spare = sum(places * many for places, many in rest.items()) - wanted * size
    while wanted > 0:
        group, held = list[int](), 0
        while held < size and rest:
            completing = [places for places in rest if held + places >= size]
            group.append(min(completing) if group and completing else max(rest))
            held += group[-1]
            rest[group[-1]] -= 1
            if not rest[group[-1]]:
                del rest[group[-1]]
        spare -= held % size
        if spare < 0 or held < size:
            yield (*group, *sorted(rest.elements()))
            return
        wanted -= held // size
        yield tuple(group)
