import pytest

from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import Device
from raymega.plan.seats import seats_of

CORE = Device(name="core", flops_per_s={"fp32": 10.0}, memory_bytes=1.0, memory_bytes_per_s=5.0, alone=1.5)
HERE = Cluster(nodes=tuple(Node(id=name, devices=2, device=CORE) for name in "ab"))


@pytest.mark.parametrize(("nodes", "rates"), [("aa", (10, 10)), ("ab", (15, 15)), ("aab", (10, 10, 15))])
def test_stages_that_share_a_node_have_the_pace_of_neighbours(nodes: str, rates: tuple[int, ...]) -> None:
    seats = seats_of(Mesh(dp=1, tp=1, pp=len(nodes)), nodes=tuple(nodes), cluster=HERE)
    assert tuple(seat.device.flops_per_s["fp32"] for seat in seats) == rates
