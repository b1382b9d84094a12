"""Groups over gloo, for workers that compute on CPUs.

    fabric (one per worker and generation)    one connection to the store; one gloo device: listener, loop thread
      group "g3/dp/0"                         a raw ProcessGroupGloo: one connection per peer, no default group
      group "g3/pp/0-1"                       ...

What gloo lacks is added here and in `gloo_group`: an abort that works from any thread, errors that reach all members,
and the names of those who never came.
"""

import threading
import time
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from raymega.comm.failures import group_broken, timed_out
from raymega.comm.gloo_group import GlooGroup
from raymega.comm.group import Group, GroupSpec
from raymega.comm.rendezvous import Rendezvous
from raymega.comm.sockets import Address, Connection, cut, new_connections, new_listeners, open_sockets
from raymega.comm.solo import SoloGroup
from raymega.comm.traffic import Traffic
from raymega.metrics import generation_words
from raymega.plan.plan import WorkerId

_Gloo: Any = dist.ProcessGroupGloo  # Any: torch's stub lacks most of it


class GlooFabric:
    """`Fabric` of one worker process. Make it with `connect`."""

    def __init__(
        self, *, me: WorkerId, generation: int, timeout_s: float,
        rendezvous: Rendezvous, device: Any, listens_at: Address,
    ) -> None:  # fmt: skip
        self.me, self.generation, self.timeout_s = me, generation, timeout_s
        self.traffic = Traffic()
        self._rendezvous, self._device, self._listens_at = rendezvous, device, listens_at
        self._groups: dict[str, Group] = {}
        self._building = threading.Lock()
        self._aborted = threading.Event()
        self._peers: frozenset[Address] = (
            frozenset()
        )  # where the devices of the members listen, of the group being built

    @classmethod
    def connect(
        cls, store: Address, *, me: WorkerId, generation: int, timeout_s: float = 30.0, bind_address: str = "127.0.0.1"
    ) -> "GlooFabric":
        """Connect to the store of the generation and listen on `bind_address`, an address that the peers can reach.

        Raises: ClusterError if the store does not answer.
        """
        rendezvous = Rendezvous.connect(store, generation=generation, timeout_s=timeout_s)
        device, listens_at = _device(bind_address)
        return cls(
            me=me, generation=generation, timeout_s=timeout_s,
            rendezvous=rendezvous, device=device, listens_at=listens_at,
        )  # fmt: skip

    def group(self, spec: GroupSpec) -> Group:
        with self._building:
            self._check(spec.key)
            if spec.key not in self._groups:
                self._groups[spec.key] = self._build(spec)
            return self._groups[spec.key]

    def abort(self, *, spare: Collection[str] = ()) -> None:
        self._aborted.set()
        for key, group in list(self._groups.items()):
            if key not in spare:
                group.abort()
        while not self._building.acquire(timeout=0.002):
            self._rendezvous.cut()
            cut(self._connections(frozenset()))
        self._building.release()
        self._rendezvous.cut()

    def close(self) -> None:
        for group in self._groups.values():
            group.close()
        self._groups.clear()

    def _check(self, key: str) -> None:
        if self._aborted.is_set():
            raise group_broken(key, reason=f"{self.me} aborted {generation_words(self.generation)}")

    def _build(self, spec: GroupSpec) -> Group:
        rank, size = spec.members.index(self.me), len(spec.members)
        if size == 1:
            return SoloGroup(spec=spec)
        listeners = self._rendezvous.meet(spec, rank=rank, here=_text(self._listens_at))
        self._peers = frozenset(_address(text) for text in listeners)
        before = open_sockets()
        began = time.monotonic()
        try:
            pg = _Gloo(self._rendezvous.prefixed(spec.key), rank, size, self._options())
        except RuntimeError as error:
            cut(self._connections(before))  # so that the others need not wait for their limit
            self._check(spec.key)
            self._rendezvous.report_stuck(spec, rank=rank, index=0)
            if time.monotonic() - began > 0.9 * self.timeout_s:
                missing = self._rendezvous.laggards(spec, index=0)
                raise timed_out(spec.key, op="connecting", timeout_s=self.timeout_s, missing=missing) from error
            raise group_broken(spec.key, reason=f"a member went away while it was built ({error})") from error
        group = GlooGroup(
            pg=pg, spec=spec, rank=rank, timeout_s=self.timeout_s,
            connections=self._connections(before), traffic=self.traffic, rendezvous=self._rendezvous,
        )  # fmt: skip
        if self._aborted.is_set():
            group.abort()
        return group

    def _options(self) -> Any:  # Any: torch's stub lacks the class
        options = _Gloo._Options()
        options._devices = [self._device]
        options._threads = 2  # one takes two to four times as long for small calls on a busy machine (measured)
        options._timeout = timedelta(seconds=self.timeout_s)
        return options

    def _connections(self, before: frozenset[int]) -> tuple[Connection, ...]:
        """Connections of this fabric's device that were not there `before`."""
        return tuple(
            connection
            for connection in new_connections(before)
            if connection.local == self._listens_at or connection.remote in self._peers
        )


def _device(bind_address: str) -> tuple[Any, Address]:
    """A gloo device and where it listens."""
    while True:
        before = open_sockets()
        device = _Gloo.create_device(hostname=bind_address)
        listeners = [address for address in new_listeners(before) if address[0] == bind_address]
        if len(listeners) == 1:
            return device, listeners[0]
        time.sleep(0.001 * (1 + threading.get_ident() % 7))  # another thread made one meanwhile: which is ours?


def _text(address: Address) -> str:
    return f"{address[0]} {address[1]}"


def _address(text: str) -> Address:
    host, port = text.split()
    return host, int(port)
