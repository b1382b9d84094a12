"""Boundary messages between two neighbouring stages, over threads and over gloo."""

import gc
from collections.abc import Iterator

import pytest
import torch

from raymega.comm.boundary_log import BoundaryLog
from raymega.comm.frames import HEADER_BYTES, BufferPool, Message, framed_bytes
from raymega.comm.group import Group
from raymega.comm.local import LocalFabric, LocalHub
from raymega.comm.p2p import SENDS_AHEAD, Expected, Inbox, Outbox
from raymega.errors import GroupBroken, RaymegaBug, StaleMessage, StateError
from tests.comm.worlds import WORLDS, World, at_once, on_group, spec, start, workers
from tests.waiting import eventually

SHAPE = (2, 3, 5)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    yield made
    made.close()


def down(microbatch: int, *, step: int = 0, chunk: int = 0) -> Message:
    return Message(step=step, microbatch=microbatch, chunk=chunk, direction="F")


def up(microbatch: int, *, step: int = 0) -> Message:
    return Message(step=step, microbatch=microbatch, chunk=1, direction="B")


def value(message: Message) -> torch.Tensor:
    return torch.full(SHAPE, 100.0 * message.step + message.microbatch + 0.5 * (message.direction == "B"))


def expect(group: Group, messages: list[Message], *, dtype: torch.dtype = torch.float32) -> list[Expected]:
    return [Expected(message=m, group=group, src=1 - group.rank, shape=SHAPE, dtype=dtype) for m in messages]


def local_pair(*, unbuffered: bool = False) -> list[Group]:
    hub = LocalHub(unbuffered=unbuffered)
    fabrics = [LocalFabric(hub, me=me, generation=1, timeout_s=5.0) for me in workers(2)]
    return [t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]


def test_activations_and_gradients_arrive_whole(world: World) -> None:
    def stage(group: Group) -> list[torch.Tensor]:
        make, await_ = (down, up) if group.rank == 0 else (up, down)
        outbox = Outbox(log=BoundaryLog(), generation=1)
        inbox = Inbox(pool=BufferPool(), generation=1)
        inbox.expect(expect(group, [await_(m) for m in range(5)]))
        got = []
        for m in range(5):
            outbox.send(value(make(m)), make(m), group=group, dst=1 - group.rank)
            got.append(inbox.take(await_(m)).clone())
            inbox.recycle(await_(m))
        outbox.finish()
        return got

    first, last = on_group(world, 2, stage)
    assert all(torch.equal(x, value(up(m))) for m, x in enumerate(first))
    assert all(torch.equal(x, value(down(m))) for m, x in enumerate(last))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_received_tensor_lies_in_its_buffer_aligned(world: World, dtype: torch.dtype) -> None:
    def stage(group: Group) -> torch.Tensor | None:
        if group.rank == 0:
            outbox = Outbox(log=BoundaryLog(), generation=1)
            outbox.send(value(down(3)).to(dtype), down(3), group=group, dst=1)
            return outbox.finish()
        inbox = Inbox(pool=BufferPool(), generation=1)
        inbox.expect(expect(group, [down(3)], dtype=dtype))
        return inbox.take(down(3))

    x = on_group(world, 2, stage)[1]
    assert torch.equal(x, value(down(3)).to(dtype))
    assert x.storage_offset() * x.element_size() == HEADER_BYTES
    assert x.data_ptr() % 64 == 0
    assert x.untyped_storage().nbytes() == framed_bytes(SHAPE, dtype)


def test_streams_of_chunks_and_directions_do_not_wait_for_each_other(world: World) -> None:
    def stage(group: Group) -> list[float]:
        messages = [down(0, chunk=0), down(0, chunk=2), down(1, chunk=0)]
        if group.rank == 0:
            outbox = Outbox(log=BoundaryLog(), generation=1)
            for message in messages:
                outbox.send(value(message) + message.chunk, message, group=group, dst=1)
            outbox.finish()
            return []
        order = [messages[1], messages[0], messages[2]]
        inbox = Inbox(pool=BufferPool(), generation=1)
        inbox.expect(expect(group, order))
        return [float(inbox.take(message)[0, 0, 0]) for message in order]

    assert on_group(world, 2, stage)[1] == [2.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("sent", "generation", "words"),
    [
        (down(5), 1, r"expected generation 1 step 0 0F7 of 30 elements, got generation 1 step 0 0F5"),
        (down(7, step=1), 1, "got generation 1 step 1 0F7"),
        (down(7), 2, "got generation 2 step 0 0F7"),
    ],
)
def test_a_message_of_another_pass_is_refused(sent: Message, generation: int, words: str) -> None:
    groups = local_pair()
    Outbox(log=BoundaryLog(), generation=generation).send(value(sent), sent, group=groups[0], dst=1)
    inbox = Inbox(pool=BufferPool(), generation=1)
    inbox.expect(expect(groups[1], [down(7)]))
    with pytest.raises(StaleMessage, match=words) as caught:
        inbox.take(down(7))
    assert caught.value.facts["got"][3] == sent.microbatch


def test_bytes_that_are_no_boundary_message_are_refused() -> None:
    groups = local_pair()
    groups[0].start_send(torch.zeros(framed_bytes(SHAPE, torch.float32), dtype=torch.uint8), dst=1)
    inbox = Inbox(pool=BufferPool(), generation=1)
    inbox.expect(expect(groups[1], [down(0)]))
    with pytest.raises(StaleMessage, match="got bytes that are no boundary message"):
        inbox.take(down(0))


def test_sending_waits_for_nobody() -> None:
    groups = local_pair(unbuffered=True)
    outbox = Outbox(log=BoundaryLog(), generation=1)
    x = value(down(0))
    for m in range(20):
        outbox.send(x, down(m), group=groups[0], dst=1)
    x.zero_()
    inbox = Inbox(pool=BufferPool(), generation=1)
    inbox.expect(expect(groups[1], [down(m) for m in range(20)]))
    assert all(torch.equal(inbox.take(down(m)), value(down(0))) for m in range(20)), "the log holds what was sent"
    outbox.finish()


def test_only_so_many_receives_are_posted_ahead() -> None:
    groups = local_pair()
    inbox = Inbox(pool=BufferPool(), generation=1, ahead=3)
    inbox.expect(expect(groups[1], [down(m) for m in range(10)]))
    traffic = groups[1]._fabric.traffic
    assert traffic.calls("recv") == 3
    with pytest.raises(RaymegaBug, match=r"0F4 is taken out of order; posted are step 0 0F0"):
        inbox.take(down(4))
    Outbox(log=BoundaryLog(), generation=1).send(value(down(0)), down(0), group=groups[0], dst=1)
    inbox.take(down(0))
    assert traffic.calls("recv") == 4


def test_the_log_sends_again_under_a_new_generation() -> None:
    groups = local_pair()
    log = BoundaryLog()
    broken = Outbox(log=log, generation=1)
    broken.send(value(down(4)), down(4), group=groups[0], dst=1)
    groups[0].abort()
    broken.abandon()
    groups = local_pair()
    Outbox(log=log, generation=2).send_again(down(4), group=groups[0], dst=1)
    inbox = Inbox(pool=BufferPool(), generation=2)
    inbox.expect(expect(groups[1], [down(4)]))
    assert torch.equal(inbox.take(down(4)), value(down(4)))


def test_the_log_keeps_until_release() -> None:
    log = BoundaryLog()
    for step in range(3):
        log.record(down(0, step=step), value(down(0)))
    log.release(through_step=1)
    assert log.messages == (down(0, step=2),)
    assert log.num_bytes == framed_bytes(SHAPE, torch.float32)
    with pytest.raises(StateError, match="does not hold step 1 0F0"):
        log.find(down(0, step=1))


def test_the_log_refuses_to_release_what_travels() -> None:
    groups = local_pair(unbuffered=True)
    log = BoundaryLog()
    outbox = Outbox(log=log, generation=1)
    outbox.send(value(down(0)), down(0), group=groups[0], dst=1)
    with pytest.raises(AssertionError, match="is being sent"):
        log.release(through_step=0)


def test_a_waiting_stage_learns_of_an_abort(world: World) -> None:
    fabrics = [world.fabric(me) for me in workers(2)]
    groups = [t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]
    inbox = Inbox(pool=BufferPool(), generation=1)
    inbox.expect(expect(groups[1], [down(0), down(1)]))
    waiting = start(lambda: inbox.take(down(0)))
    eventually(lambda: fabrics[1].traffic.calls("recv") == 2, limit_s=5.0)
    fabrics[0].abort()
    assert isinstance(waiting.join(1.0).error, GroupBroken)
    fabrics[1].close()


def live_tensors() -> int:
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def test_a_hundred_steps_leave_nothing_behind(world: World) -> None:
    counts: dict[int, list[int]] = {0: [], 1: []}

    def stage(group: Group) -> None:
        make, await_ = (down, up) if group.rank == 0 else (up, down)
        log, pool = BoundaryLog(), BufferPool()
        outbox, inbox = Outbox(log=log, generation=1), Inbox(pool=pool, generation=1)
        for step in range(100):
            inbox.expect(expect(group, [await_(m, step=step) for m in range(2)]))
            for m in range(2):
                outbox.send(value(make(m, step=step)), make(m, step=step), group=group, dst=1 - group.rank)
                inbox.take(await_(m, step=step))
                inbox.recycle(await_(m, step=step))
            outbox.finish()
            log.release(through_step=step)
            group.barrier()
            if step % 25 == 24:
                counts[group.rank].append(live_tensors())
            group.barrier()

    gc.collect()
    gc.disable()
    try:
        on_group(world, 2, stage)
    finally:
        gc.enable()
    assert all(abs(later - early) <= 2 for early, *rest in counts.values() for later in rest), counts


def held_bytes(kept: str, *, messages: int) -> tuple[int, int]:
    """(in the end, at most) in a log that is sent from."""
    groups, log = local_pair(unbuffered=True), BoundaryLog(kept=kept)
    outbox, inbox = Outbox(log=log, generation=1), Inbox(pool=BufferPool(), generation=1)
    sent = [down(m) for m in range(messages)]
    inbox.expect(expect(groups[1], sent))
    for message in sent:
        outbox.send(value(message), message, group=groups[0], dst=1)
        assert torch.equal(inbox.take(message), value(message))
        inbox.recycle(message)
    outbox.finish()
    return log.num_bytes, log.peak_bytes


def test_a_log_that_is_off_keeps_what_travels_and_no_more() -> None:
    size = framed_bytes(SHAPE, torch.float32)
    assert held_bytes("device", messages=20) == held_bytes("host", messages=20) == (20 * size, 20 * size)
    assert held_bytes("off", messages=20) == (0, (SENDS_AHEAD + 1) * size)
