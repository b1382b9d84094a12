"""Large reductions between members of one node, through memory that they share.

    area of 0   in: x0 but piece 0    out: sum of piece 0         the pieces of x are added up by one member each,
    area of 1   in: x1 but piece 1    out: sum of piece 1         in rank order, so all get the same bits

    copy x to my `in`  -> all meet ->  add up my piece into my `out`  -> all meet ->  copy everyone's `out` to x

To meet is a tiny gloo reduction, so a death, an abort or a limit ends the wait as in any other call. Parts that are
started one after the other lie side by side in `in` and in `out`, and end together; what finds no room begins when
they have ended. Two meetings for each are enough: `in` is read before the second one, and `out` is not written again
before a first one of later parts, which nobody reaches who still reads. All members start and wait in the same order.
"""

from collections import deque
from typing import Protocol

import torch

from raymega.comm.group import ReduceOp, Work
from raymega.comm.shared_memory import share

ALIGN_BYTES = 64
LEAST_BYTES = 2 << 20  # below, gloo alone is as fast (measured)
MOST_PARTS = 64  # a guess: with the room, far above what is in flight together
MOST_BYTES = 32 << 20  # more goes through in parts: memory is bounded by 1.5 times this, per member of a pair


class Wire(Protocol):
    """What a reduction needs of its group; not counted as traffic."""

    rank: int
    size: int

    def gather(self, payload: bytes) -> list[bytes]: ...
    def start_meeting(self, index: int) -> Work:
        """Work that is done once all members have come to this point of collective number `index`."""


class SharedReduce:
    """The shared memory of one group; grows to what is in flight together."""

    def __init__(self) -> None:
        self._areas: tuple[torch.Tensor, ...] = ()
        self._room_bytes, self._in_bytes, self._out_bytes = 0, 0, 0
        self._asked_bytes = 0
        self._impossible = False
        self._waiting: deque[_Part] = deque()
        self._entered: list[_Part] = []

    def fits(self, x: torch.Tensor, wire: Wire) -> bool:
        """Can `x` go this way? All members answer alike; the first time they find out together."""
        if x.nbytes < LEAST_BYTES or self._impossible:
            return False
        self._asked_bytes += _aligned(x.nbytes)
        self.reserve(self._asked_bytes, wire=wire)
        return not self._impossible

    def reserve(self, num_bytes: int, *, wire: Wire) -> None:
        """Have room for so much together, in parts if it is more than is ever taken; if nothing is in flight."""
        wanted = min(num_bytes, MOST_BYTES)
        if wanted <= max(self._room_bytes, LEAST_BYTES - 1) or self._entered or self._impossible:
            return
        areas = share(wanted + _room_for_sums(wanted, wire.size), rank=wire.rank, gather=wire.gather)
        self._areas, self._room_bytes, self._impossible = areas or (), wanted, areas is None

    def start(self, x: torch.Tensor, op: ReduceOp, *, out: torch.Tensor, wire: Wire, index: int) -> "SharedWork":
        """Begin to reduce `x` into `out`, which may be `x`."""
        length = self._room_bytes // x.element_size()
        pieces = zip(x.detach().view(-1).split(length), out.detach().view(-1).split(length), strict=True)
        parts = [_Part(a, out=b, op=op, wire=wire, index=index) for a, b in pieces]
        self._waiting.extend(parts)
        self._enter()
        return SharedWork(self, last=parts[-1])

    def finish(self) -> None:
        """End all that has been started."""
        while self._entered:
            for part in self._entered:
                part.add_up()
            for part in self._entered:
                part.collect()
            self._entered.clear()
            self._in_bytes = self._out_bytes = 0
            self._enter()
        self._asked_bytes = 0

    def _enter(self) -> None:
        """Let those in that have room, in order."""
        while self._waiting:
            part = self._waiting[0]
            if self._in_bytes + part.in_bytes > self._room_bytes or len(self._entered) == MOST_PARTS:
                return
            part.enter(
                [area[self._in_bytes :] for area in self._areas],
                [area[_aligned(self._room_bytes) + self._out_bytes :] for area in self._areas],
            )
            self._in_bytes += _aligned(part.in_bytes)
            self._out_bytes += part.out_bytes
            self._entered.append(self._waiting.popleft())


class SharedWork:
    """A reduction in flight: what has room is copied in when it starts, the rest is done in `wait`."""

    __slots__ = ("_last", "_shared")

    def __init__(self, shared: SharedReduce, *, last: "_Part") -> None:
        self._shared, self._last = shared, last

    def wait(self) -> None:
        if not self._last.is_done:
            self._shared.finish()


class _Part:
    """What goes through at once."""

    def __init__(self, x: torch.Tensor, *, out: torch.Tensor, op: ReduceOp, wire: Wire, index: int) -> None:
        self._x, self._to, self._op, self._wire, self._index = x, out, op, wire, index
        self.in_bytes, self.out_bytes = x.nbytes, _aligned(x.nbytes // wire.size + ALIGN_BYTES)
        self.is_done = False

    def enter(self, ins: list[torch.Tensor], outs: list[torch.Tensor]) -> None:
        """Take the beginnings of `ins` and `outs`, of every member."""
        self._ins, self._outs = ins, outs
        mine, into = self._piece(self._wire.rank), self._in(self._wire.rank)
        into[: mine.start].copy_(self._x[: mine.start])
        into[mine.stop :].copy_(self._x[mine.stop :])
        self._meeting = self._wire.start_meeting(self._index)

    def add_up(self) -> None:
        self._meeting.wait()
        mine, total = self._piece(self._wire.rank), self._out(self._wire.rank)
        combine = torch.add if self._op == "sum" else torch.maximum
        terms = [(self._x if r == self._wire.rank else self._in(r))[mine] for r in range(self._wire.size)]
        combine(terms[0], terms[1], out=total)
        for term in terms[2:]:
            combine(total, term, out=total)
        self._meeting = self._wire.start_meeting(self._index)
        self._to[mine].copy_(total)

    def collect(self) -> None:
        self._meeting.wait()
        for rank in range(self._wire.size):
            if rank != self._wire.rank:
                self._to[self._piece(rank)].copy_(self._out(rank))
        self.is_done = True

    def _piece(self, rank: int) -> slice:
        """The elements that `rank` adds up."""
        return slice(rank * self._x.numel() // self._wire.size, (rank + 1) * self._x.numel() // self._wire.size)

    def _in(self, rank: int) -> torch.Tensor:
        return self._ins[rank][: self._x.nbytes].view(self._x.dtype)

    def _out(self, rank: int) -> torch.Tensor:
        piece = self._piece(rank)
        return self._outs[rank][: (piece.stop - piece.start) * self._x.element_size()].view(self._x.dtype)


def _room_for_sums(room_bytes: int, size: int) -> int:
    """Behind `in`: space for the largest sums of as many parts as may be there together."""
    return ALIGN_BYTES + _aligned(room_bytes // size) + MOST_PARTS * 2 * ALIGN_BYTES


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGN_BYTES) * ALIGN_BYTES
