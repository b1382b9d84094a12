"""Groups on a GPU. One device runs a world of one; a pair of workers needs two."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from raymega.cli.nccl import nccl_findings
from raymega.comm.fabrics import fabric_for
from raymega.comm.gloo import GlooFabric
from raymega.comm.nccl import NcclFabric, NcclGroup
from raymega.comm.store import RendezvousStore
from raymega.errors import CollectiveTimeout, GroupBroken
from tests.comm.fake_nccl import fake_fabrics
from tests.comm.worlds import at_once, spec, start, workers
from tests.waiting import eventually

needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs a GPU for each member; two here")


@pytest.fixture
def store() -> Iterator[RendezvousStore]:
    opened = RendezvousStore.open()
    yield opened
    opened.close()


def test_the_device_decides_the_kind_of_groups(store: RendezvousStore) -> None:
    for device, kind in (("cpu", GlooFabric), ("cuda:0", NcclFabric)):
        fabric = fabric_for(device, store=store.address, me="w0", generation=1)
        assert isinstance(fabric, kind)
        fabric.close()


def alone(store: RendezvousStore, *, generation: int) -> tuple[NcclFabric, NcclGroup]:
    """NCCL with a single member, which a fabric does without by itself."""
    fabric = NcclFabric.connect(store.address, me="w0", generation=generation, device=torch.device("cuda", 0))
    return fabric, fabric.build(spec(1, f"g{generation}/dp/0"))


@pytest.mark.gpu
def test_a_world_of_one_is_built_aborted_and_built_again(store: RendezvousStore) -> None:
    first, group = alone(store, generation=1)
    x = torch.arange(4.0, device="cuda")
    group.all_reduce(x)
    assert group.all_gather_bytes(b"here") == [b"here"]
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    first.abort()
    group.abort()
    with pytest.raises(GroupBroken):
        group.barrier()
    second, again = alone(store, generation=2)
    again.all_reduce(x)
    again.barrier()
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    second.close()
    again.close()


@pytest.mark.gpu
def test_a_wait_orders_the_stream_in_use(store: RendezvousStore) -> None:
    fabric, group = alone(store, generation=1)
    x, stream = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(3.0)
        work = group.start_all_reduce(x)
        work.wait()
        doubled = x * 2
    stream.synchronize()
    assert bool((doubled == 6.0).all())
    group.close()
    fabric.close()


@pytest.mark.gpu
def test_the_doctor_finds_nccl_in_order() -> None:
    found = list(nccl_findings())
    assert {finding.standing for finding in found} == {"ok"}
    assert found[-1].subject == "nccl again"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_doctor_says_that_nccl_is_untested() -> None:
    (found,) = nccl_findings()
    assert (found.standing, found.detail.partition(":")[0]) == ("warning", "untested")


def pair(store: RendezvousStore) -> list[NcclFabric]:
    return [
        NcclFabric.connect(store.address, me=me, generation=1, device=torch.device("cuda", i))
        for i, me in enumerate(workers(2))
    ]


@pytest.fixture
def nccl() -> Iterator[Callable[..., NcclFabric]]:
    with fake_fabrics() as fabric:
        yield fabric


def fake_pair(nccl) -> list[NcclGroup]:
    fabrics = [nccl(me) for me in workers(2)]
    return [thread.result for thread in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]


def test_receives_posted_before_anything_is_sent_block_nobody(nccl) -> None:
    groups = fake_pair(nccl)

    def swap(rank: int) -> float:
        theirs = torch.zeros(1)
        early = groups[rank].start_recv(theirs, src=1 - rank)  # NCCL's own would connect here, each another one
        groups[rank].start_send(torch.tensor([float(rank)]), dst=1 - rank).wait()
        early.wait()
        return float(theirs)

    assert [thread.result for thread in at_once([lambda: swap(0), lambda: swap(1)])] == [1.0, 0.0]


def test_who_waits_for_a_connection_to_the_dead_leaves_when_told_to(nccl) -> None:
    alone, dies = nccl("w0"), nccl("w1")
    waiting = start(lambda: alone.group(spec(2)))
    dies._rendezvous.meet(spec(2), rank=1, here="nccl")  # and then nothing more
    eventually(lambda: any(thread.name.startswith("connects-") for thread in threading.enumerate()))
    alone.abort()
    assert isinstance(waiting.join(5.0).error, GroupBroken)


def test_a_member_that_never_connects_is_named_at_the_limit(nccl) -> None:
    alone, dies = nccl("w0", timeout_s=0.3), nccl("w1")
    waiting = start(lambda: alone.group(spec(2)))
    dies._rendezvous.meet(spec(2), rank=1, here="nccl")
    error = waiting.join(5.0).error
    assert isinstance(error, CollectiveTimeout)
    assert error.facts["missing"] == ("w1",)


@pytest.mark.parametrize("call", ["barrier", "all_reduce", "wait"])
def test_what_nccl_says_of_a_lost_peer_breaks_the_group(nccl, call: str) -> None:
    group, other = fake_pair(nccl)
    works = {
        "barrier": group.barrier,
        "all_reduce": lambda: group.all_reduce(torch.ones(1)),
        "wait": group.start_recv(torch.ones(1), src=1).wait,
    }
    blocked = start(works[call])
    other.abort()
    assert isinstance(blocked.join(5.0).error, GroupBroken)
    with pytest.raises(GroupBroken):
        group.start_send(torch.ones(1), dst=1)


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
