"""Groups whose members are threads of one process: the cheapest world in which every rule of a group holds.

    hub = LocalHub()                                         one per test, shared by all workers
    fabric = LocalFabric(hub, me="w0", generation=1, timeout_s=10.0)    one per worker and generation
    group = fabric.group(GroupSpec(key="g1/dp/0", members=("w0", "w1")))

Reductions add up in rank order, so results do not depend on who comes first. How a test breaks things: `local_hub`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from raymega.comm.failures import group_broken
from raymega.comm.group import Group, GroupSpec, ReduceOp, Work
from raymega.comm.local_hub import LocalHub, WorkerKilled
from raymega.comm.local_room import Parcel, Room
from raymega.comm.solo import SoloGroup
from raymega.comm.traffic import Traffic
from raymega.metrics import generation_words
from raymega.plan.plan import WorkerId

__all__ = ["LocalFabric", "LocalGroup", "LocalHub", "WorkerKilled"]


class LocalWork:
    """A round or a message in flight."""

    def __init__(self, group: "LocalGroup", *, op: str, ticket: Any, missing: Callable[[], list[int]]) -> None:
        self._group, self._op, self._ticket, self._missing = group, op, ticket, missing

    def wait(self) -> None:
        self._group.finish(self._ticket, op=self._op, missing=self._missing)


class LocalGroup:
    """`Group` over a room of the hub."""

    def __init__(self, fabric: "LocalFabric", *, spec: GroupSpec, room: Room) -> None:
        self.spec = spec
        self.rank = spec.members.index(fabric.me)
        self.size = len(spec.members)
        self._fabric, self._room = fabric, room
        self._num_rounds = 0

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None:
        self.start_all_reduce(x, op).wait()

    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        x = x if out is None else out.copy_(x)
        return self._collective("all_reduce", x, what=f"{op} {_shape(x)}", run=lambda parts: _all_reduce(parts, op))

    def reserve(self, num_bytes: int) -> None:
        """Threads need nothing."""

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self.start_all_gather(out, x).wait()

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        assert out.numel() == self.size * x.numel(), f"out has {out.numel()} elements, needs {self.size * x.numel()}"
        return self._collective("all_gather", x, out, what=_shape(x), run=_all_gather)

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        assert x.numel() == self.size * out.numel(), f"x has {x.numel()} elements, needs {self.size * out.numel()}"
        self._collective("reduce_scatter", x, out, what=_shape(x), run=_reduce_scatter).wait()

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        self._enter("all_to_all", _num_bytes(x))
        pieces, places = x.split(list(in_sizes)), out.split(list(out_sizes))
        return self._round("all_to_all", pieces, places, what=str(x.dtype), run=_all_to_all)

    def broadcast(self, x: torch.Tensor, *, src: int) -> None:
        self._collective("broadcast", x, what=f"{src} {_shape(x)}", run=lambda parts: _broadcast(parts, src)).wait()

    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        gathered: list[bytes] = []
        self._collective("all_gather_bytes", payload, gathered, what="", run=_all_gather_bytes).wait()
        return gathered

    def barrier(self) -> None:
        self._collective("barrier", b"", what="", run=lambda parts: None).wait()

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work:
        assert dst != self.rank, "a worker sends nothing to itself"
        self._enter("send", _num_bytes(x))
        buffered = not self._fabric.hub.unbuffered
        parcel = Parcel(tensor=x.detach().clone() if buffered else x.detach(), done=False)
        with self._room.changed:
            self._room.check()
            self._room.send(parcel, src=self.rank, dst=dst, tag=tag)
            parcel.done = parcel.done or buffered
        return LocalWork(self, op="send", ticket=parcel, missing=lambda: [dst])

    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work:
        assert src != self.rank, "a worker receives nothing from itself"
        self._enter("recv", _num_bytes(x))
        parcel = Parcel(tensor=x.detach())
        with self._room.changed:
            self._room.check()
            self._room.receive(parcel, src=src, dst=self.rank, tag=tag)
        return LocalWork(self, op="recv", ticket=parcel, missing=lambda: [src])

    def abort(self) -> None:
        with self._room.changed:
            self._room.break_up(f"{self._fabric.me} aborted it")

    def close(self) -> None:
        with self._room.changed:
            self._room.break_up(f"{self._fabric.me} closed it")
        self._fabric.hub.forget(self.spec, generation=self._fabric.generation)

    def finish(self, ticket: Any, *, op: str, missing: Callable[[], list[int]]) -> None:
        """Wait for a round or a parcel."""
        hub, timeout_s = self._fabric.hub, self._fabric.timeout_s
        try:
            with self._room.changed:
                self._room.wait(lambda: ticket.done, op=op, timeout_s=timeout_s, missing=missing)
        finally:
            hub.pass_gate(self._fabric.me)

    def _collective(self, op: str, *part: Any, what: str, run: Callable[[list[Any]], None]) -> Work:
        self._enter(op, _num_bytes(part[0]))
        return self._round(op, *part, what=what, run=run)

    def _round(self, op: str, *part: Any, what: str, run: Callable[[list[Any]], None]) -> Work:
        with self._room.changed:
            self._room.check()
            index, self._num_rounds = self._num_rounds, self._num_rounds + 1
            round_ = self._room.arrive(index, rank=self.rank, what=f"{op} {what}".strip(), part=part, run=run)
        ranks = range(self.size)
        return LocalWork(self, op=op, ticket=round_, missing=lambda: [r for r in ranks if r not in round_.parts])

    def _enter(self, op: str, num_bytes: int) -> None:
        self._fabric.enter(self.spec.key, op)
        self._fabric.traffic.add(self.spec.key, op, num_bytes)


class LocalFabric:
    """`Fabric` of one worker, which is a thread (or several) of this process."""

    def __init__(self, hub: LocalHub, *, me: WorkerId, generation: int, timeout_s: float = 30.0) -> None:
        self.hub, self.me, self.generation, self.timeout_s = hub, me, generation, timeout_s
        self.traffic = Traffic()
        self._groups: dict[str, Group] = {}
        self._rooms: list[Room] = []
        self._aborted = False

    def group(self, spec: GroupSpec) -> Group:
        if self._aborted:
            raise group_broken(spec.key, reason=f"{self.me} aborted {generation_words(self.generation)}")
        if spec.key in self._groups:
            return self._groups[spec.key]
        self._groups[spec.key] = SoloGroup(spec=spec) if len(spec.members) == 1 else self._build(spec)
        return self._groups[spec.key]

    def abort(self, *, spare: Collection[str] = ()) -> None:
        with self.hub.lock:
            self._aborted = True
            for room in self._rooms:
                if room.key not in spare:
                    room.break_up(f"{self.me} aborted it")
        for key, group in list(self._groups.items()):
            if key not in spare:
                group.abort()

    def close(self) -> None:
        for group in self._groups.values():
            group.close()

    def enter(self, key: str, op: str) -> None:
        """The point before each call at which tests look on, and kill or hold the worker."""
        if self.hub.on_op is not None:
            self.hub.on_op(self.me, key, op)
        self.hub.pass_gate(self.me)

    def _build(self, spec: GroupSpec) -> LocalGroup:
        self.enter(spec.key, "build")
        room = self.hub.room(spec, generation=self.generation)
        with room.changed:
            self._rooms.append(room)
            if self._aborted:
                room.break_up(f"{self.me} aborted it")
            try:
                room.join(spec.members.index(self.me), timeout_s=self.timeout_s)
            finally:
                self.hub.pass_gate(self.me)
        return LocalGroup(self, spec=spec, room=room)


def _num_bytes(x: torch.Tensor | bytes) -> int:
    return len(x) if isinstance(x, bytes) else x.numel() * x.element_size()


def _shape(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} x {x.numel()}"


@torch.no_grad()
def _all_reduce(parts: list[Any], op: ReduceOp) -> None:
    total = _total([x for (x,) in parts], op)
    for (x,) in parts:
        x.copy_(total)


@torch.no_grad()
def _reduce_scatter(parts: list[Any]) -> None:
    total = _total([x for x, _ in parts], "sum").view(len(parts), -1)  # [size, elements of a piece]
    for piece, (_, out) in zip(total, parts, strict=True):
        out.view(-1).copy_(piece)


def _total(xs: list[torch.Tensor], op: ReduceOp) -> torch.Tensor:
    """Combine in rank order."""
    total = xs[0].clone()
    for x in xs[1:]:
        total = total.add_(x) if op == "sum" else torch.maximum(total, x)
    return total


@torch.no_grad()
def _all_gather(parts: list[Any]) -> None:
    whole = torch.cat([x.reshape(-1) for x, _ in parts])
    for _, out in parts:
        out.view(-1).copy_(whole)


@torch.no_grad()
def _all_to_all(parts: list[Any]) -> None:
    for receiver, (_, places) in enumerate(parts):
        for (pieces, _), place in zip(parts, places, strict=True):
            place.copy_(pieces[receiver])


@torch.no_grad()
def _broadcast(parts: list[Any], src: int) -> None:
    for rank, (x,) in enumerate(parts):
        if rank != src:
            x.copy_(parts[src][0])


def _all_gather_bytes(parts: list[Any]) -> None:
    for _, gathered in parts:
        gathered.extend(payload for payload, _ in parts)
