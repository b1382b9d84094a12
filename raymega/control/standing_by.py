"""Where standbys wait: whole teams on one node, spread over nodes, away from those whose places they may have to take.

free devices   n0: 1   n1: 2   n2: 2      the plan has   n0: 3 workers   n1: 2   n2: none
tp=2, 4 standbys wanted     the team of n2, then that of n1; a single device makes no team
"""

from collections import Counter
from collections.abc import Iterable

from raymega.control.story import Seat


def standby_seats(free: Iterable[Seat], *, wanted: int, tp: int, busy_nodes: Iterable[str]) -> tuple[Seat, ...]:
    """So many of the free seats as are `wanted`, rounded up to whole teams; fewer where there are fewer.

    Args:
        tp: workers of a team, which have to be on one node to be of use.
        busy_nodes: the node of each worker of the plan.
    """
    crowd, by_node = Counter(busy_nodes), dict[str, list[Seat]]()
    for seat in free:
        by_node.setdefault(seat.node, []).append(seat)
    teams = [
        (first // tp, crowd[node], tuple(seats[first : first + tp]))
        for node, seats in by_node.items()
        for first in range(0, len(seats) - tp + 1, tp)
    ]
    chosen = [seat for _, _, team in sorted(teams, key=lambda row: row[:2]) for seat in team]
    return tuple(chosen[: -(-wanted // tp) * tp])
