"""A worker's side of the rendezvous store: who has come to a group, and who is stuck in it.

    here/{rank}     written before a group is built: where the member's gloo device listens
    stuck/{rank}    written only after a failure: the number of the collective that the member was in

All keys stand under "{generation}:{group key}", so that generations cannot meet, and every rank of a failed group can
say which members did not reach the same collective.
"""

import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from raymega.comm.failures import group_broken, timed_out
from raymega.comm.group import GroupSpec
from raymega.comm.sockets import Address, Connection, cut, new_connections, open_sockets
from raymega.errors import ClusterError, GroupBroken

Store = Any  # a dist.TCPStore or PrefixStore, which torch exports without types
_torch: Any = dist

_ROLL_CALL_S = 0.5  # guess: members that were stuck as well wake within milliseconds
_PATIENCE_S = 0.1  # guess: what an error may be held back by a report of it


class Rendezvous:
    """One connection to the store; `cut` ends it from any thread and thereby every wait on it."""

    def __init__(self, *, client: Store, connection: Connection, generation: int, timeout_s: float) -> None:
        self._client, self._connection = client, connection
        self._generation, self._timeout_s = generation, timeout_s
        self._busy = threading.Lock()  # held through long waits, which block every other use of the client
        self._is_cut = False

    @classmethod
    def connect(cls, address: Address, *, generation: int, timeout_s: float) -> "Rendezvous":
        """Connect to the store at `address`. Raises: ClusterError if nobody answers there."""
        while True:
            before = open_sockets()
            client = _client(address, timeout_s=timeout_s)
            ours = [connection for connection in new_connections(before) if connection.remote == address]
            if len(ours) == 1:
                return cls(client=client, connection=ours[0], generation=generation, timeout_s=timeout_s)
            time.sleep(0.001 * (1 + threading.get_ident() % 7))  # another thread connected meanwhile: which is ours?

    def prefixed(self, key: str) -> Store:
        """The store as the group `key` sees it."""
        return _torch.PrefixStore(f"{self._generation}:{key}", self._client)

    def meet(self, spec: GroupSpec, *, rank: int, here: str) -> tuple[str, ...]:
        """Announce `here` and wait for all members; what each announced, by rank.

        Raises: CollectiveTimeout naming the members that never came; GroupBroken after `cut`, or without a store.
        """
        store = self.prefixed(spec.key)
        keys = [f"here/{member}" for member in range(len(spec.members))]
        with self._busy:
            try:
                store.set(keys[rank], here)
                store.wait(keys, timedelta(seconds=self._timeout_s))
                return tuple(store.get(key).decode() for key in keys)
            except dist.DistStoreError as error:
                missing = [member for member, key in zip(spec.members, keys, strict=True) if not store.check([key])]
                raise timed_out(spec.key, op="building", timeout_s=self._timeout_s, missing=missing) from error
            except RuntimeError as error:
                raise self.lost(spec.key) from error

    def lost(self, key: str) -> GroupBroken:
        """The error for a group that the store's loss, or `cut`, has left unbuilt."""
        reason = "this worker aborted the generation" if self._is_cut else "the rendezvous store does not answer"
        return group_broken(key, reason=reason)

    def report_stuck(self, spec: GroupSpec, *, rank: int, index: int) -> None:
        """Say that this member was in collective number `index` when the group failed; skipped if that takes long."""
        if not self._busy.acquire(timeout=_PATIENCE_S):
            return
        try:
            self.prefixed(spec.key).set(f"stuck/{rank}", str(index))
        except RuntimeError:  # no store: nobody will ask
            return
        finally:
            self._busy.release()

    def laggards(self, spec: GroupSpec, *, index: int) -> tuple[str, ...]:
        """The members that have not come to collective number `index`; empty if that cannot be found out."""
        limit = time.monotonic() + _ROLL_CALL_S
        store = self.prefixed(spec.key)
        missing = spec.members
        try:
            while missing and time.monotonic() < limit:
                missing = tuple(m for rank, m in enumerate(spec.members) if _came_to(store, rank) < index)
                time.sleep(0.005)
        except RuntimeError:
            return ()
        return missing

    def cut(self) -> None:
        self._is_cut = True
        cut([self._connection])


def _came_to(store: Store, rank: int) -> int:
    key = f"stuck/{rank}"
    return int(store.get(key)) if store.check([key]) else -1


def _client(address: Address, *, timeout_s: float) -> Store:
    host, port = address
    try:
        return _torch.TCPStore(
            host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout_s)
        )  # fmt: skip
    except RuntimeError as error:
        raise ClusterError(
            f"no rendezvous store answers at {host}:{port}; its controller is gone or cut off. "
            "Wait for the next generation.",
            address=address,
        ) from error
