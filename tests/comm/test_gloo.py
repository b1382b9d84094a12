"""What only gloo can show: sockets, threads and files of this process, before and after."""

import gc
import os
import socket
import threading
import time
from datetime import timedelta

import pytest
import torch

from raymega.comm import gloo_sends, sockets
from raymega.comm.gloo import GlooFabric
from raymega.comm.gloo_group import GlooGroup, GlooWork
from raymega.comm.group import Group
from raymega.comm.sockets import cut
from raymega.comm.store import RendezvousStore
from raymega.errors import ClusterError, GroupBroken
from tests.comm.worlds import GlooWorld, at_once, on_group, spec, start, workers
from tests.waiting import eventually


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def num_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def one_generation(number: int) -> None:
    """Two workers meet, reduce, and leave in one of three ways."""
    store = RendezvousStore.open()
    fabrics = [GlooFabric.connect(store.address, me=me, generation=number, timeout_s=10.0) for me in workers(2)]

    def body(fabric: GlooFabric) -> None:
        for key in ("dp", "pp"):
            fabric.group(spec(2, key)).all_reduce(torch.ones(600_000 if number % 10 == 0 else 10))

    assert [t.error for t in at_once([lambda f=f: body(f) for f in fabrics])] == [None, None]
    if number % 3 == 0:
        fabrics[0].abort()
    if number % 3 == 1:
        fabrics[1].group(spec(2, "dp")).start_recv(torch.ones(10), src=0)  # still in flight when it closes
    for fabric in fabrics:
        fabric.close()
    store.close()


def test_twenty_rebuilds_leave_no_thread_file_or_socket() -> None:
    one_generation(0)
    gc.collect()
    gc.disable()
    try:
        before = num_threads(), num_files()
        for number in range(20):
            one_generation(number)
        eventually(lambda: (num_threads(), num_files()) == before, limit_s=5.0)
    finally:
        gc.enable()


def test_the_store_and_the_fabric_listen_on_one_address_only() -> None:
    store = RendezvousStore.open("127.0.0.1")
    fabric = GlooFabric.connect(store.address, me="w0", generation=1)
    for port in (store.address[1], fabric._listens_at[1]):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=1.0)
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    fabric.close()
    store.close()


def test_a_store_that_is_gone_is_said_so() -> None:
    store = RendezvousStore.open()
    store.close()
    with pytest.raises(ClusterError, match=f"no rendezvous store answers at 127.0.0.1:{store.address[1]}"):
        GlooFabric.connect(store.address, me="w0", generation=1, timeout_s=1.0)


def test_live_groups_need_no_store() -> None:
    world = GlooWorld()
    fabrics = [world.fabric(me) for me in workers(2)]
    groups = [t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]
    world.close()
    assert [t.error for t in at_once([g.barrier for g in groups])] == [None, None]
    with pytest.raises(GroupBroken, match="the rendezvous store does not answer"):
        fabrics[0].group(spec(2, "g1/other"))
    for fabric in fabrics:
        fabric.close()


def test_abort_leaves_other_generations_and_foreign_sockets_alone() -> None:
    world = GlooWorld()
    ours, theirs = socket.socketpair()
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    old = [world.fabric(me, generation=1) for me in workers(2)]
    new = [world.fabric(me, generation=2) for me in workers(2)]
    groups = [[t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])] for fabrics in (old, new)]
    old[0].abort()
    assert [t.error for t in at_once([g.barrier for g in groups[1]])] == [None, None]
    client.sendall(b"x")
    ours.sendall(b"x")
    assert accepted.recv(1) == theirs.recv(1) == b"x"
    for thing in (ours, theirs, server, client, accepted, *old, *new, world):
        thing.close()


def test_abort_frees_a_member_whose_peer_does_not_connect() -> None:
    world = GlooWorld()
    fabric, absent = world.fabric("w0"), world.fabric("w1")
    building = start(lambda: fabric.group(spec(2)))
    absent._rendezvous.meet(spec(2), rank=1, here="127.0.0.1 1")
    began_s = time.monotonic()
    fabric.abort()
    assert isinstance(building.join(1.0).error, GroupBroken)
    assert time.monotonic() - began_s < 1.0
    absent.close()
    world.close()


def test_abort_is_quick_and_may_be_repeated() -> None:
    world = GlooWorld()
    fabrics = [world.fabric(me) for me in workers(2)]
    groups = [t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]
    ended = threading.Event()
    blocked = start(lambda: _recv(groups[0], ended))
    eventually(lambda: fabrics[0].traffic.calls("recv") == 1, limit_s=5.0)
    began_s = time.monotonic()
    fabrics[0].abort()
    fabrics[0].abort()
    assert ended.wait(1.0)
    print(f"woken after {1000 * (time.monotonic() - began_s):.1f} ms")
    assert isinstance(blocked.join().error, GroupBroken)
    for fabric in fabrics:
        fabric.close()
        fabric.close()
    world.close()


def _recv(group: Group, ended: threading.Event) -> None:
    try:
        group.start_recv(torch.zeros(1), src=1 - group.rank).wait()
    finally:
        ended.set()


def test_eight_members_agree_to_the_bit() -> None:
    def body(group: Group) -> torch.Tensor:
        x = torch.randn(5003, generator=torch.Generator().manual_seed(group.rank))
        group.all_reduce(x)
        return x

    first, *rest = on_group(GlooWorld(), 8, body)
    assert all(torch.equal(first, x) for x in rest)


def test_a_send_that_is_cut_while_it_is_written_ends(monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(gloo_sends, "LOOK_S", 0.001)
    waiter = gloo_sends.SendWaiter()

    class Forgotten:
        def wait(self):
            never.wait(20.0)

    with pytest.raises(RuntimeError, match="its connection ended while it was sent"):
        waiter.wait(Forgotten(), is_over=lambda: True)
    never.set()
    waiter.close()


def test_connections_that_were_cut_at_either_end_have_ended():
    listener = socket.create_server(("127.0.0.1", 0))
    before = sockets.open_sockets()
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    both = sockets.new_connections(before)
    assert not sockets.has_ended(both)
    sockets.cut(both[:1])
    assert sockets.has_ended(both[:1])
    for end in (near, far, listener):
        end.close()
    assert sockets.has_ended(both)


class ForgottenWork:
    """A collective in which a write failed: gloo tells nobody, and waits for it until the group's limit."""

    def wait(self, limit: timedelta | None = None) -> None:
        assert limit is not None, "would wait until the group's limit"
        raise RuntimeError("Operation timed out!")


class LateWork:
    """A collective that ends just as a look at it has ended."""

    def __init__(self) -> None:
        self.looks = 0

    def wait(self, limit: timedelta | None = None) -> None:
        self.looks += 1
        if self.looks == 1:
            raise RuntimeError("Operation timed out!")

    def is_completed(self) -> bool:
        return True


def test_a_collective_that_ends_as_a_look_at_it_ends_has_not_failed() -> None:
    work = LateWork()
    gloo_sends.wait_for_collective(work, is_over=lambda: True)
    assert work.looks == 2


def test_a_collective_that_gloo_has_forgotten_ends_with_its_connection() -> None:
    def body(group: GlooGroup) -> float:
        group.barrier()
        cut(group._connections)
        began = time.monotonic()
        with pytest.raises(GroupBroken, match="its connection ended"):
            GlooWork(group, op="all_to_all", work=ForgottenWork(), tensors=()).wait()
        group.close()
        return time.monotonic() - began

    world = GlooWorld()
    assert max(on_group(world, 2, body)) < 5.0
    world.close()


def test_a_slow_collective_is_waited_for_while_its_connections_last() -> None:
    def body(group: GlooGroup) -> float:
        x = torch.ones(4)
        if group.rank == 1:
            came.wait(10.0)
        else:
            threading.Timer(0.3, came.set).start()  # longer than a look at the connections
        group.all_reduce(x)
        return float(x[0])

    came = threading.Event()
    world = GlooWorld()
    assert on_group(world, 2, body) == [2.0, 2.0]
    world.close()
