"""Groups on a GPU. A single device can only run a group of one process, so what is tested is one pair of them."""

import pytest
import torch

from raymega.comm.fabrics import fabric_for
from raymega.comm.gloo import GlooFabric
from raymega.comm.nccl import NcclFabric
from raymega.comm.store import RendezvousStore
from raymega.errors import GroupBroken
from tests.comm.worlds import at_once, spec, start, workers

needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs a GPU for each member; two here")


def test_the_device_decides_the_kind_of_groups() -> None:
    store = RendezvousStore.open()
    for device, kind in (("cpu", GlooFabric), ("cuda:0", NcclFabric)):
        fabric = fabric_for(device, store=store.address, me="w0", generation=1)
        assert isinstance(fabric, kind)
        fabric.close()
    store.close()


def pair(store: RendezvousStore) -> list[NcclFabric]:
    return [
        NcclFabric.connect(store.address, me=me, generation=1, device=torch.device("cuda", i))
        for i, me in enumerate(workers(2))
    ]


@pytest.mark.gpu
@needs_two_gpus
def test_collectives_and_messages_of_both_directions() -> None:
    store = RendezvousStore.open()
    fabrics = pair(store)

    def body(rank: int) -> tuple[float, float, list[bytes]]:
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        group = fabrics[rank].group(spec(2))
        x, y, z = (
            torch.ones(4, device=device),
            torch.full((4,), float(rank), device=device),
            torch.zeros(4, device=device),
        )
        group.all_reduce(x)
        early = group.start_recv(z, src=1 - rank)
        group.start_send(y, dst=1 - rank).wait()
        early.wait()
        return float(x[0]), float(z[0]), group.all_gather_bytes(b"x" * rank)

    assert [t.result for t in at_once([lambda: body(0), lambda: body(1)])] == [
        (2.0, 1.0, [b"", b"x"]),
        (2.0, 0.0, [b"", b"x"]),
    ]
    for fabric in fabrics:
        fabric.close()
    store.close()


@pytest.mark.gpu
@needs_two_gpus
def test_abort_wakes_a_host_that_waits() -> None:
    store = RendezvousStore.open()
    fabrics = pair(store)
    groups = [t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]
    at_once([group.barrier for group in groups])
    blocked = start(groups[0].barrier)
    fabrics[0].abort()
    assert isinstance(blocked.join(5.0).error, GroupBroken)
    fabrics[1].abort()
    store.close()
