"""Activations down, gradients up: messages between neighbouring stages that block no computation.

    producer                                   consumer
    outbox.send(y, 0F5) --> boundary log       inbox: receives of the next few expected messages are posted
         returns at once       |                        |
         computes 0F6          +---- one message -----> buffer: [header | payload]
                                               x = inbox.take(0F5)    waits, checks the header, a view of the buffer
    outbox.finish()  at the end of the step    inbox.recycle(0F5)     when the backward is through

A send is complete only when the other side has posted its receive, so nobody waits for one before the end of the step.
A group that breaks holds up nothing that has come: a worker runs on until an input is not there.
Works alike over threads, gloo and NCCL.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from raymega.comm.boundary_log import BoundaryLog
from raymega.comm.frames import (
    BufferPool,
    Message,
    framed_bytes,
    header_due,
    header_of,
    payload_of,
    stale,
    write_header,
)
from raymega.comm.group import Group, Work
from raymega.errors import GroupBroken, RaymegaBug

SENDS_AHEAD = 4  # without a log: about what is under way at a time, far below the messages of a step


class Outbox:
    """The sending side of one worker in one generation."""

    def __init__(self, *, log: BoundaryLog, generation: int) -> None:
        self._log, self._generation = log, generation
        self._in_flight: deque[tuple[Message, Work]] = deque()
        self._broken: GroupBroken | None = None

    def send(self, x: torch.Tensor, message: Message, *, group: Group, dst: int) -> None:
        """Copy `x` into the log and send it to rank `dst` of `group`; `x` may be changed or freed afterwards."""
        self.keep(x, message)
        self.send_again(message, group=group, dst=dst)

    def keep(self, x: torch.Tensor, message: Message) -> None:
        """Copy `x` into the log; from here on `send_again` can send it, however often."""
        self._log.record(message, x)

    def send_again(self, message: Message, *, group: Group, dst: int) -> None:
        """Send what the log holds; where that cannot be sent any more, `finish` says so."""
        buffer, itemsize = self._log.find(message)
        write_header(buffer, message, generation=self._generation, itemsize=itemsize)
        try:
            work = group.start_send(buffer, dst=dst, tag=message.tag)
        except GroupBroken as error:
            self._broken = error
            return
        self._log.lend(message)
        self._in_flight.append((message, work))
        while self._log.is_off and len(self._in_flight) > SENDS_AHEAD:
            self._finish_oldest()

    def kept(self, message: Message, *, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """What the log holds of a message that this worker takes in itself; valid until the log is released."""
        return payload_of(self._log.find(message)[0], shape=shape, dtype=dtype)

    def finish(self) -> None:
        """Wait until all sends are received. Raises: GroupBroken if one of them never will be."""
        if self._broken is not None:
            raise self._broken
        while self._in_flight:
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        message, work = self._in_flight[0]
        work.wait()
        self._in_flight.popleft()
        self._log.returned(message)

    def abandon(self) -> None:
        """Give up what is in flight; only after its groups are closed. The log keeps the messages."""
        for message, _ in self._in_flight:
            self._log.returned(message)
        self._in_flight.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A message that the program will take: from rank `src` of `group`, of this shape."""

    message: Message
    group: Group
    src: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def wire(self) -> tuple[str, int]:
        """What it comes over."""
        return self.group.spec.key, self.src


class Inbox:
    """The receiving side of one worker in one generation.

    `expect` gives it the messages of a step in the order in which the program takes them; up to `ahead` receives are
    posted before they are taken. Buffers come from `pool`, which outlives it. Wires that look at no tags bring what one
    peer sends in the order of sending, so a message that is taken later may come first: headers say which one came.
    """

    def __init__(self, *, pool: BufferPool, generation: int, ahead: int = 2) -> None:
        assert ahead >= 1, "at least the next message must be posted"
        self._pool, self._generation, self._ahead = pool, generation, ahead
        self._waiting: deque[Expected] = deque()
        self._posted: dict[Message, Expected] = {}
        self._receives: defaultdict[tuple[str, int], deque[tuple[torch.Tensor, Work]]] = defaultdict(deque)
        self._come: dict[Message, torch.Tensor] = {}
        self._taken: dict[Message, torch.Tensor] = {}

    def expect(self, messages: Iterable[Expected]) -> None:
        """Add what comes next, and post as far as allowed."""
        self._waiting.extend(messages)
        self._post()

    def take(self, message: Message) -> torch.Tensor:
        """Wait for `message`; its tensor is a view of a receive buffer, valid until `recycle`.

        Raises: StaleMessage if something else comes; GroupBroken, CollectiveTimeout as the group does.
        """
        if message not in self._posted:
            raise RaymegaBug(f"{message} is taken out of order; posted are {', '.join(map(str, self._posted))}.")
        expected = self._posted.pop(message)
        self._post()
        while message not in self._come:
            self._receive(expected)
        buffer = self._taken[message] = self._come.pop(message)
        return payload_of(buffer, shape=expected.shape, dtype=expected.dtype)

    def recycle(self, message: Message) -> None:
        """Let the buffer of `message` be received into again; its tensor and its graph must not be used any more."""
        self._pool.give(self._taken.pop(message))

    def _receive(self, wanted: Expected) -> None:
        """Wait for the oldest receive from whom `wanted` comes from; it is that, or what is taken later."""
        buffer, work = self._receives[wanted.wire].popleft()
        work.wait()
        later = (other for other in (*self._posted.values(), *self._waiting) if other.wire == wanted.wire)
        got = header_of(buffer)
        came = next((one for one in (wanted, *later) if self._header(one) == got), None)
        if came is None or came.message in self._come:
            raise stale(due=self._header(wanted), got=got)
        self._come[came.message] = buffer
        if came in self._waiting:  # it came in what was posted for another
            self._waiting.remove(came)
            self._posted[came.message] = came
            self._start(wanted)

    def _header(self, one: Expected) -> tuple[int, ...]:
        return header_due(one.message, generation=self._generation, shape=one.shape, dtype=one.dtype)

    def _post(self) -> None:
        """Keep `ahead` receives posted."""
        while self._waiting and len(self._posted) < self._ahead:
            expected = self._waiting.popleft()
            self._posted[expected.message] = expected
            self._start(expected)

    def _start(self, expected: Expected) -> None:
        buffer = self._pool.take(framed_bytes(expected.shape, expected.dtype))
        self._receives[expected.wire].append((buffer, _start(expected, buffer)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Never:
    """What will not come: its group was broken already. Told to who takes it, not to who takes what came before."""

    error: GroupBroken

    def wait(self) -> None:
        raise self.error


def _start(expected: Expected, buffer: torch.Tensor) -> Work:
    try:
        return expected.group.start_recv(buffer, src=expected.src, tag=expected.message.tag)
    except GroupBroken as error:
        return _Never(error=error)
