"""Communicators that behave as NCCL's do where it matters for a host, over threads and memory.

connects   the first call blocks the host until all members of the communicator have made theirs
messages   come in the order of sending, whatever their tags
death      a member that dies makes others' calls raise what torch raises for NCCL's errors
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch
import torch.distributed as dist

from raymega.comm.group import GroupSpec
from raymega.comm.nccl import NcclFabric
from raymega.comm.store import RendezvousStore


@dataclass(kw_only=True)
class Wire:
    """One communicator, as all its members see it."""

    size: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    members: set[int] = field(default_factory=set)
    dead: bool = False
    messages: defaultdict[int, deque[torch.Tensor]] = field(default_factory=lambda: defaultdict(deque))
    rounds: defaultdict[int, dict[int, torch.Tensor]] = field(default_factory=lambda: defaultdict(dict))


@dataclass(kw_only=True)
class Work:
    """Is done once `outcome` gives something, which goes to `into`."""

    wire: Wire
    outcome: Callable[[], torch.Tensor | None]
    into: torch.Tensor | None = None

    def is_completed(self) -> bool:
        with self.wire.changed:
            return self.wire.dead or self.outcome() is not None

    def wait(self) -> None:
        with self.wire.changed:
            self.wire.changed.wait_for(lambda: self.wire.dead or self.outcome() is not None)
            if self.wire.dead:
                raise dist.DistBackendError("NCCL error: remote process exited or there was a network error")
            found = self.outcome()
        if self.into is not None and found is not None:
            self.into.copy_(found)


@dataclass(kw_only=True)
class FakeNccl:
    """What NcclGroup uses of a ProcessGroupNCCL."""

    wire: Wire
    rank: int
    num_rounds: int = 0
    is_aborted: bool = False

    def _connect(self) -> None:
        with self.wire.changed:
            if self.is_aborted:
                raise dist.DistBackendError("NCCL communicator was aborted")
            self.wire.members.add(self.rank)
            self.wire.changed.notify_all()
            self.wire.changed.wait_for(lambda: len(self.wire.members) == self.wire.size)  # nothing wakes it

    def _round(self, x: torch.Tensor, into: torch.Tensor, result: Callable[[list[torch.Tensor]], torch.Tensor]) -> Work:
        self._connect()
        self.num_rounds += 1
        parts = self.wire.rounds[self.num_rounds]
        with self.wire.changed:
            parts[self.rank] = x.clone()
            self.wire.changed.notify_all()

        def outcome() -> torch.Tensor | None:
            return result([parts[rank] for rank in sorted(parts)]) if len(parts) == self.wire.size else None

        return Work(wire=self.wire, outcome=outcome, into=into)

    def allreduce(self, xs: list[torch.Tensor], _: object) -> Work:
        return self._round(xs[0], xs[0], lambda parts: torch.stack(parts).sum(0))

    def _allgather_base(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        return self._round(x, out, torch.cat)

    def send(self, xs: list[torch.Tensor], dst: int, _: int) -> Work:
        self._connect()
        with self.wire.changed:
            self.wire.messages[dst].append(xs[0].clone())
            self.wire.changed.notify_all()
        return Work(wire=self.wire, outcome=lambda: xs[0])

    def recv(self, xs: list[torch.Tensor], _src: int, _: int) -> Work:
        self._connect()
        came: list[torch.Tensor] = []

        def outcome() -> torch.Tensor | None:
            if not came and self.wire.messages[self.rank]:
                came.append(self.wire.messages[self.rank].popleft())
            return came[0] if came else None

        return Work(wire=self.wire, outcome=outcome, into=xs[0])

    def abort(self) -> None:
        with self.wire.changed:
            self.is_aborted = self.wire.dead = True
            self.wire.changed.notify_all()


@contextmanager
def fake_fabrics() -> Iterator[Callable[..., NcclFabric]]:
    """Makes fabrics of such communicators, by name, that can meet."""
    store, wires, lock = RendezvousStore.open(), dict[str, Wire](), threading.Lock()

    def communicator(self: NcclFabric, spec: GroupSpec, name: str, rank: int) -> FakeNccl:
        with lock:
            wire = wires.setdefault(f"{spec.key}/{name}", Wire(size=len(spec.members)))
        return FakeNccl(wire=wire, rank=rank)

    def fabric(me: str, *, timeout_s: float = 10.0) -> NcclFabric:
        return NcclFabric.connect(store.address, me=me, generation=1, device=torch.device("cpu"), timeout_s=timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NcclFabric, "_communicator", communicator)
        yield fabric
    store.close()
