"""One gloo group, made safe: every wait ends, and every member learns of a failure.

    abort      cuts the group's connections: blocked calls return within milliseconds, here and at the peers
    cascade    a call that fails cuts them too, since gloo leaves members blocked that wait on a live peer
    names      a wait that reaches its limit asks the store who else was stuck; who was not, never came

Large reductions between members of one node go through shared memory (`shared_reduce`).

gloo's own `abort` and `shutdown` do nothing, and dropping a group with a call in flight blocks until that call ends: a
group with one that gloo has forgotten (`gloo_sends`) is dropped on a thread of its own.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from raymega.comm.failures import group_broken, timed_out
from raymega.comm.gloo_sends import Forgotten, SendWaiter, wait_for_collective
from raymega.comm.group import GroupSpec, ReduceOp, Work
from raymega.comm.rendezvous import Rendezvous
from raymega.comm.shared_reduce import SharedReduce
from raymega.comm.sockets import Connection, cut, has_ended
from raymega.comm.traffic import Traffic
from raymega.errors import ClusterError
from raymega.plan.plan import WorkerId

RawGroup = Any  # a dist.ProcessGroupGloo, most of whose methods torch's stub lacks
Begin = Callable[[RawGroup], dist.Work]

_ALL_TO_ALL = dist.AllToAllOptions()
_SLOT_BYTES = 1024  # payloads up to 8 bytes less travel in one exchange: facts of 40 micro-batches do


class GlooWork:
    """A call in flight. Holds its tensors."""

    __slots__ = ("_group", "_index", "_op", "_peer", "_tensors", "_work")

    def __init__(
        self, group: "GlooGroup", *, op: str, work: dist.Work, tensors: tuple[torch.Tensor, ...],
        index: int = 0, peer: int | None = None,
    ) -> None:  # fmt: skip
        self._group, self._op, self._work, self._tensors = group, op, work, tensors
        self._index, self._peer = index, peer

    def wait(self) -> None:
        try:
            self._wait()
        except RuntimeError as error:
            raise self._group.failed(error, op=self._op, index=self._index, peer=self._peer) from error

    def _wait(self) -> None:
        match self._op:
            case "send":
                self._group.sends.wait(self._work, is_over=self._group.has_ended)
            case "recv":  # of which gloo always tells
                self._work.wait()
            case _:
                wait_for_collective(self._work, is_over=self._group.has_ended)


class GlooGroup:
    """`Group` over one ProcessGroupGloo."""

    def __init__(
        self, *, pg: RawGroup, spec: GroupSpec, rank: int, timeout_s: float,
        connections: tuple[Connection, ...], traffic: Traffic, rendezvous: Rendezvous,
    ) -> None:  # fmt: skip
        self.spec, self.rank, self.size = spec, rank, len(spec.members)
        self._pg: RawGroup | None = pg
        self._timeout_s, self._connections, self._traffic, self._rendezvous = (
            timeout_s,
            connections,
            traffic,
            rendezvous,
        )
        self._broken: str | None = None
        self._is_forgotten = False
        self._num_collectives = 0
        self._shared = SharedReduce()
        self.sends = SendWaiter()
        self._reduce = {"sum": _reduction(dist.ReduceOp.SUM), "max": _reduction(dist.ReduceOp.MAX)}
        self._slot = torch.zeros(_SLOT_BYTES, dtype=torch.uint8)
        self._slots = torch.zeros(self.size * _SLOT_BYTES, dtype=torch.uint8)

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None:
        self.start_all_reduce(x, op).wait()

    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        self._count("all_reduce", x.nbytes)
        if self._shared.fits(x, self):
            self._num_collectives += 1
            return self._shared.start(x, op, out=x if out is None else out, wire=self, index=self._num_collectives)
        x = x if out is None else out.copy_(x)
        return self._collective("all_reduce", lambda pg: pg.allreduce([x], self._reduce[op]), x)

    def reserve(self, num_bytes: int) -> None:
        self._shared.reserve(num_bytes, wire=self)

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self.start_all_gather(out, x).wait()

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        assert out.numel() == self.size * x.numel(), f"out has {out.numel()} elements, needs {self.size * x.numel()}"
        self._count("all_gather", x.nbytes)
        flat_out, flat_x = out.view(-1), x.view(-1)
        return self._collective("all_gather", lambda pg: pg._allgather_base(flat_out, flat_x), x, out)

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        assert x.numel() == self.size * out.numel(), f"x has {x.numel()} elements, needs {self.size * out.numel()}"
        self._count("reduce_scatter", x.nbytes)
        flat_out, flat_x = out.view(-1), x.view(-1)
        self._collective("reduce_scatter", lambda pg: pg._reduce_scatter_base(flat_out, flat_x), x, out).wait()

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        self._count("all_to_all", x.nbytes)
        sizes = list(out_sizes), list(in_sizes)
        return self._collective("all_to_all", lambda pg: pg.alltoall_base(out, x, *sizes, _ALL_TO_ALL), x, out)

    def broadcast(self, x: torch.Tensor, *, src: int) -> None:
        self._count("broadcast", x.nbytes)
        options = dist.BroadcastOptions()
        options.rootRank = src
        options.rootTensor = 0
        self._collective("broadcast", lambda pg: pg.broadcast([x], options), x).wait()

    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        self._count("all_gather_bytes", len(payload))
        return self.gather(payload)

    def gather(self, payload: bytes) -> list[bytes]:
        """Short payloads travel in one exchange of fixed slots [length | bytes]; longer ones in a second, padded."""
        slot = self._slot.numpy()
        slot[:8].view(np.int64)[0] = len(payload)
        head = payload[: _SLOT_BYTES - 8]
        slot[8 : 8 + len(head)] = np.frombuffer(head, dtype=np.uint8)
        self._gather_bytes(self._slots, self._slot)
        slots = self._slots.numpy().reshape(self.size, _SLOT_BYTES)
        lengths = slots[:, :8].copy().view(np.int64)[:, 0]
        if int(lengths.max()) <= _SLOT_BYTES - 8:
            return [slots[rank, 8 : 8 + length].tobytes() for rank, length in enumerate(lengths)]
        return self._gather_long_bytes(payload, lengths)

    def barrier(self) -> None:
        self._count("barrier", 0)
        self._collective("barrier", lambda pg: pg.barrier()).wait()

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work:
        self._count("send", x.nbytes)
        return self._start("send", lambda pg: pg.send([x], dst, tag), (x,), peer=dst)

    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work:
        self._count("recv", x.nbytes)
        return self._start("recv", lambda pg: pg.recv([x], src, tag), (x,), peer=src)

    def start_meeting(self, index: int) -> Work:
        """A reduction of one element: it ends when all have come, and is cheaper than messages or gloo's barrier."""
        token = torch.zeros(1)
        return self._start("all_reduce", lambda pg: pg.allreduce([token], self._reduce["sum"]), (token,), index=index)

    def abort(self) -> None:
        self._break("this worker aborted it")

    def close(self) -> None:
        self._break("this worker closed it")
        self.sends.close()
        left, self._pg = [self._pg], None
        if self._is_forgotten:  # dropping it takes as long as gloo waits
            threading.Thread(target=left.clear, name="drops-group", daemon=True).start()
        self._shared = SharedReduce()

    def failed(self, error: RuntimeError, *, op: str, index: int, peer: int | None) -> ClusterError:
        """The error to raise for what gloo says; breaks the group for all members."""
        late = self._broken is None and "imed out" in str(error)
        self._is_forgotten = self._is_forgotten or isinstance(error, Forgotten)
        self._break(f"{op} failed ({str(error).splitlines()[0]})")
        self._rendezvous.report_stuck(self.spec, rank=self.rank, index=index)
        if not late:
            return group_broken(self.spec.key, reason=str(self._broken))
        missing = self._missing(index=index, peer=peer)
        return timed_out(self.spec.key, op=op, timeout_s=self._timeout_s, missing=missing)

    def _missing(self, *, index: int, peer: int | None) -> tuple[WorkerId, ...]:
        if self.size == 2:
            peer = 1 - self.rank
        if peer is not None:
            return (self.spec.members[peer],)
        return self._rendezvous.laggards(self.spec, index=index)

    def has_ended(self) -> bool:
        """Whether no message can come or go any more."""
        return self._broken is not None or has_ended(self._connections)

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        cut(self._connections)

    def _collective(self, op: str, begin: Begin, *tensors: torch.Tensor) -> GlooWork:
        self._num_collectives += 1
        return self._start(op, begin, tensors, index=self._num_collectives)

    def _count(self, op: str, num_bytes: int) -> None:
        self._traffic.add(self.spec.key, op, num_bytes)

    def _start(
        self, op: str, begin: Begin, tensors: tuple[torch.Tensor, ...],
        *, index: int = 0, peer: int | None = None,
    ) -> GlooWork:  # fmt: skip
        pg = self._pg
        if self._broken is not None or pg is None:
            raise group_broken(self.spec.key, reason=str(self._broken))
        try:
            work = begin(pg)
        except RuntimeError as error:
            raise self.failed(error, op=op, index=index, peer=peer) from error
        return GlooWork(self, op=op, work=work, tensors=tensors, index=index, peer=peer)

    def _gather_bytes(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self._collective("all_gather_bytes", lambda pg: pg._allgather_base(out, x), x, out).wait()

    def _gather_long_bytes(self, payload: bytes, lengths: np.ndarray) -> list[bytes]:
        width = int(lengths.max())
        x = torch.zeros(width, dtype=torch.uint8)
        x.numpy()[: len(payload)] = np.frombuffer(payload, dtype=np.uint8)
        out = torch.empty(self.size * width, dtype=torch.uint8)
        self._gather_bytes(out, x)
        rows = out.numpy().reshape(self.size, width)
        return [rows[rank, :length].tobytes() for rank, length in enumerate(lengths)]


def _reduction(op: Any) -> dist.AllreduceOptions:  # op: torch's stub has two types for it
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options
