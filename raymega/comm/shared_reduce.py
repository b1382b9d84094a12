"""Large reductions between members of one node, through memory that they share.

    area of 0   in: x0 but piece 0    out: sum of piece 0         the pieces of x are added up by one member each,
    area of 1   in: x1 but piece 1    out: sum of piece 1         in rank order, so all get the same bits

    copy x to my `in`  -> all meet ->  add up my piece into my `out`  -> all meet ->  copy everyone's `out` to x

To meet is a tiny gloo reduction, so a death, an abort or a limit ends the wait as in any other call. Two meetings
are enough: `in` is read before the second one, and `out` is not written again before the first of the next reduction,
which nobody reaches who still reads.
"""

from typing import Protocol

import torch

from raymega.comm.group import ReduceOp, Work
from raymega.comm.shared_memory import share

LEAST_BYTES = 2 << 20  # below, gloo alone is as fast (measured)
MOST_BYTES = 32 << 20  # larger tensors go through in parts: memory is bounded by 1.5 times this, per member of a pair


class Wire(Protocol):
    """What a reduction needs of its group; not counted as traffic."""

    rank: int
    size: int

    def gather(self, payload: bytes) -> list[bytes]: ...
    def start_meeting(self, index: int) -> Work:
        """Work that is done once all members have come to this point of collective number `index`."""


class SharedReduce:
    """The shared memory of one group; grows to the largest reduction."""

    def __init__(self) -> None:
        self._areas: tuple[torch.Tensor, ...] | None = None
        self._room_bytes = 0
        self._impossible = False
        self._last: SharedWork | None = None

    def fits(self, x: torch.Tensor, wire: Wire) -> bool:
        """Can `x` go this way? All members answer alike; the first time they find out together."""
        if x.nbytes < LEAST_BYTES or self._impossible:
            return False
        needed = min(x.nbytes, MOST_BYTES)
        if needed > self._room_bytes:
            self.finish()
            self._areas = share(needed + _out_bytes(needed, wire.size), rank=wire.rank, gather=wire.gather)
            self._room_bytes, self._impossible = needed, self._areas is None
        return not self._impossible

    def start(self, x: torch.Tensor, op: ReduceOp, *, wire: Wire, index: int) -> "SharedWork":
        """Begin to reduce `x`; ends the reduction before it, whose memory it takes."""
        self.finish()
        assert self._areas is not None, "`fits` has said yes"
        self._last = SharedWork(
            x.detach().view(-1), op, wire=wire, index=index, areas=self._areas, room=self._room_bytes
        )
        return self._last

    def finish(self) -> None:
        """End what is in flight."""
        last, self._last = self._last, None
        if last is not None:
            last.wait()


class SharedWork:
    """A reduction in flight: its first part is copied in when it starts, the rest is done in `wait`."""

    def __init__(
        self, x: torch.Tensor, op: ReduceOp, *, wire: Wire, index: int, areas: tuple[torch.Tensor, ...], room: int
    ) -> None:
        self._op, self._wire, self._index, self._areas, self._room = op, wire, index, areas, room
        self._parts = list(x.split(room // x.element_size()))
        self._meeting = self._enter(self._parts[0])

    def wait(self) -> None:
        while self._parts:
            part = self._parts[0]
            self._meeting.wait()
            self._add_up(part)
            self._wire.start_meeting(self._index).wait()
            self._collect(part)
            self._parts.pop(0)
            if self._parts:
                self._meeting = self._enter(self._parts[0])

    def _enter(self, x: torch.Tensor) -> Work:
        mine, into = self._piece(x, self._wire.rank), self._in(self._wire.rank, x)
        into[: mine.start].copy_(x[: mine.start])
        into[mine.stop :].copy_(x[mine.stop :])
        return self._wire.start_meeting(self._index)

    def _add_up(self, x: torch.Tensor) -> None:
        mine, total = self._piece(x, self._wire.rank), self._out(self._wire.rank, x)
        combine = torch.add if self._op == "sum" else torch.maximum
        terms = [(x if r == self._wire.rank else self._in(r, x))[mine] for r in range(self._wire.size)]
        combine(terms[0], terms[1], out=total)
        for term in terms[2:]:
            combine(total, term, out=total)
        x[mine].copy_(total)

    def _collect(self, x: torch.Tensor) -> None:
        for rank in range(self._wire.size):
            if rank != self._wire.rank:
                x[self._piece(x, rank)].copy_(self._out(rank, x))

    def _piece(self, x: torch.Tensor, rank: int) -> slice:
        """The elements that `rank` adds up."""
        return slice(rank * x.numel() // self._wire.size, (rank + 1) * x.numel() // self._wire.size)

    def _in(self, rank: int, x: torch.Tensor) -> torch.Tensor:
        return self._areas[rank][: x.nbytes].view(x.dtype)

    def _out(self, rank: int, x: torch.Tensor) -> torch.Tensor:
        piece = self._piece(x, rank)
        begin = _aligned(self._room)
        return self._areas[rank][begin : begin + (piece.stop - piece.start) * x.element_size()].view(x.dtype)


def _out_bytes(room_bytes: int, size: int) -> int:
    """Space for the largest piece behind `room_bytes`, with alignment."""
    return 64 + _aligned(room_bytes // size + 64)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64
