"""A node that goes should not take both a worker and who stands by for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.control.standing_by import standby_seats
from raymega.control.states import Seat


def free(**devices: int) -> tuple[Seat, ...]:
    places = [(node, device) for node, count in devices.items() for device in range(count)]
    return tuple(Seat(worker=f"w{n}", node=node, device=device) for n, (node, device) in enumerate(places, start=8))


@pytest.mark.parametrize(
    ("devices", "wanted", "tp", "nodes"),
    [
        ({"n0": 2, "n1": 2}, 2, 1, ["n1", "n0"]),  # spread, the emptier node first
        ({"n0": 2, "n1": 2}, 3, 1, ["n1", "n0", "n1"]),
        ({"n0": 1, "n1": 2, "n2": 2}, 4, 2, ["n2", "n2", "n1", "n1"]),  # whole teams, each on one node
        ({"n0": 3}, 1, 2, ["n0", "n0"]),  # half a team is of no use
        ({}, 2, 1, []),
    ],
)
def test_standbys_wait_where_few_work_and_in_whole_teams(devices, wanted, tp, nodes):
    seats = standby_seats(free(**devices), wanted=wanted, tp=tp, busy_nodes=["n0", "n0", "n0", "n1"])
    assert [seat.node for seat in seats] == nodes


@given(
    devices=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5)),
    wanted=st.integers(0, 9),
    tp=st.sampled_from([1, 2, 4]),
)
def test_as_many_as_wanted_each_once_in_whole_teams(devices, wanted, tp):
    offered = free(**devices)
    seats = standby_seats(offered, wanted=wanted, tp=tp, busy_nodes="a")
    assert len(set(seats)) == len(seats)
    assert set(seats) <= set(offered)
    assert all(len({seat.node for seat in seats[first : first + tp]}) == 1 for first in range(0, len(seats), tp))
    assert len(seats) == min(-(-wanted // tp), sum(count // tp for count in devices.values())) * tp
