"""What only threads offer: faults on purpose, unbuffered sends, and complaints about calls that do not fit."""

import pytest
import torch

from raymega.comm.group import Group
from raymega.comm.local import LocalFabric, LocalGroup, LocalHub, WorkerKilled
from raymega.errors import CollectiveTimeout, GroupBroken, RaymegaBug
from tests.comm.worlds import at_once, spec, start, workers


def groups_of(hub: LocalHub, size: int, *, timeout_s: float = 20.0) -> list[LocalGroup]:
    fabrics = [LocalFabric(hub, me=me, generation=1, timeout_s=timeout_s) for me in workers(size)]
    return [t.result for t in at_once([lambda f=f: f.group(spec(size)) for f in fabrics])]


def test_a_killed_worker_fails_its_peers_at_once() -> None:
    hub = LocalHub()
    groups = groups_of(hub, 3)
    blocked = [start(lambda g=g: g.all_reduce(torch.ones(2))) for g in groups[:2]]
    hub.kill("w2")
    for thread in blocked:
        assert isinstance(thread.join(1.0).error, GroupBroken)
        assert "closed by w2" in str(thread.error)


def test_a_killed_worker_makes_no_further_call() -> None:
    hub = LocalHub()
    groups = groups_of(hub, 2)
    blocked = start(groups[1].barrier)
    hub.kill("w1")
    assert isinstance(blocked.join(1.0).error, WorkerKilled)
    with pytest.raises(WorkerKilled):
        groups[1].start_send(torch.ones(1), dst=0)


def test_a_worker_can_be_killed_at_a_named_point() -> None:
    hub = LocalHub()
    hub.on_op = lambda worker, key, op: hub.kill("w1") if (worker, op) == ("w1", "broadcast") else None
    groups = groups_of(hub, 2)

    def body(group: Group) -> None:
        group.barrier()
        group.broadcast(torch.ones(1), src=1)

    errors = [type(t.error) for t in at_once([lambda g=g: body(g) for g in groups])]
    assert errors == [GroupBroken, WorkerKilled]


def test_a_worker_that_dies_while_it_builds_takes_the_others_with_it() -> None:
    hub = LocalHub()
    fabrics = [LocalFabric(hub, me=me, generation=1) for me in workers(3)]
    building = [start(lambda f=f: f.group(spec(3))) for f in fabrics[:2]]
    room = hub.room(spec(3), generation=1)
    with room.changed:
        assert room.changed.wait_for(lambda: room.joined == {0, 1}, 5.0)
    hub.kill("w1")
    assert [type(t.join(1.0).error) for t in building] == [GroupBroken, WorkerKilled]


def test_severed_workers_lose_only_their_common_groups() -> None:
    hub = LocalHub()
    groups = groups_of(hub, 2)
    hub.sever("w0", "w7")
    assert [t.error for t in at_once([g.barrier for g in groups])] == [None, None]
    hub.sever("w0", "w1")
    with pytest.raises(GroupBroken, match="was cut"):
        groups[0].barrier()


def test_a_held_worker_is_missed_until_it_is_released() -> None:
    hub = LocalHub()
    groups = groups_of(hub, 2)
    hub.hold("w1")
    threads = [start(g.barrier) for g in groups]
    threads[0]._thread.join(0.05)
    assert threads[0]._thread.is_alive()
    hub.release("w1")
    assert [t.join(1.0).error for t in threads] == [None, None]


def test_a_held_worker_runs_its_peers_into_the_limit() -> None:
    hub = LocalHub()
    groups = groups_of(hub, 2, timeout_s=0.2)
    hub.hold("w1")
    held = start(groups[1].barrier)
    with pytest.raises(CollectiveTimeout, match="w1 never came"):
        groups[0].barrier()
    hub.release("w1")
    assert isinstance(held.join(1.0).error, GroupBroken)


def crossing_sends(group: Group) -> None:
    x, y = torch.ones(1), torch.zeros(1)
    group.start_send(x, dst=1 - group.rank).wait()
    group.start_recv(y, src=1 - group.rank).wait()


def test_unbuffered_sends_show_a_deadlock_that_buffers_hide() -> None:
    buffered = at_once([lambda g=g: crossing_sends(g) for g in groups_of(LocalHub(), 2)])
    unbuffered = at_once(
        [lambda g=g: crossing_sends(g) for g in groups_of(LocalHub(unbuffered=True), 2, timeout_s=0.2)]
    )
    assert [t.error for t in buffered] == [None, None]
    assert CollectiveTimeout in [type(t.error) for t in unbuffered]


def test_a_buffered_send_keeps_what_was_sent() -> None:
    groups = groups_of(LocalHub(), 2)
    x, y = torch.ones(2), torch.zeros(2)
    groups[0].start_send(x, dst=1).wait()
    x.zero_()
    groups[1].start_recv(y, src=0).wait()
    assert torch.equal(y, torch.ones(2))


def test_collectives_that_do_not_fit_are_refused() -> None:
    groups = groups_of(LocalHub(), 2)
    threads = at_once([lambda: groups[0].all_reduce(torch.ones(3)), lambda: groups[1].barrier()])
    assert {type(t.error) for t in threads} == {RaymegaBug, GroupBroken}


def test_a_message_that_does_not_fit_its_receive_is_refused() -> None:
    groups = groups_of(LocalHub(), 2)
    groups[0].start_send(torch.ones(3), dst=1)
    with pytest.raises(RaymegaBug, match=r"w0 sends 3 x float32 to w1, which expects 2 x float32"):
        groups[1].start_recv(torch.ones(2), src=0)


def test_sums_add_up_in_rank_order() -> None:
    groups = groups_of(LocalHub(), 3)
    xs = [torch.tensor([v]) for v in (1e8, -1e8, 1.0)]
    for group, x in reversed(list(zip(groups, xs, strict=True))):
        work = group.start_all_reduce(x)
    work.wait()
    assert [float(x) for x in xs] == [1.0, 1.0, 1.0]


def test_no_two_members_lists_share_a_key() -> None:
    hub = LocalHub()
    hub.room(spec(2), generation=1)
    with pytest.raises(AssertionError, match="two lists of members"):
        hub.room(spec(3), generation=1)
