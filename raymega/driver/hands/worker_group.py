"""The worker processes of a run: started where their seats are, spoken to, and ended for good.

    start    one detached actor for each seat, all at once, on exactly its node
    send     an order to one worker; orders to a worker take effect in the order they were sent
    stop     ask to stop, then kill, then see that the process is gone

A silent worker is killed too: by Ray, and where it lives on this node by the kernel, since a stopped process does not
answer Ray. It is fenced by its generation in any case.
"""

import os
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raymega.control.states import Seat
from raymega.driver.cluster.node_watch import Device
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.hands.listening import Hearing, Listener
from raymega.errors import ClusterError
from raymega.plan.plan import WorkerId
from raymega.worker.interface import WorkerSettings
from raymega.worker.ray_actor import Birth, RemoteWorker, actor_name

STOP_GRACE_S = 2.0
RAY_KILL_S = 1.0
GONE_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiring:
    """What every worker of the run is started with."""

    run: str
    epoch: int
    factory: str
    cpus: int
    device: Device
    lease_s: float
    orphan_lease_s: float
    start_limit_s: float
    settings_of: Callable[[Seat], WorkerSettings]


@dataclass(slots=True, kw_only=True)
class _Member:
    """A worker's process. `pidfd` is a handle of the kernel's, where it runs on this node."""

    handle: Any  # Any: Ray's actor handles have no type
    seat: Seat
    pidfd: int | None = None


class WorkerGroup:
    """All worker processes of a run that are not ended yet."""

    def __init__(self, hiring: Hiring, *, hearing: Hearing) -> None:
        self._hiring, self._told_born = hiring, hearing.born
        self._members: dict[WorkerId, _Member] = {}
        self._lock = threading.Lock()
        self._here = ray.get_runtime_context().get_node_id()
        self._listener = Listener(
            hearing,
            born=self._born,
            epoch=hiring.epoch,
            lease_s=hiring.lease_s,
            start_limit_s=hiring.start_limit_s,
        )

    def start(self, seats: Iterable[Seat]) -> None:
        """Begin to start a worker on each seat; a worker that is there already is left alone."""
        for seat in seats:
            if seat.worker not in self._members:
                self._add(seat, self._launch(seat))

    def adopt(self, seats: Iterable[Seat]) -> tuple[Seat, ...]:
        """Listen to workers that an earlier controller has started; returns the seats whose worker is not there."""
        absent = []
        for seat in seats:
            try:
                self._add(seat, ray.get_actor(actor_name(run=self._hiring.run, worker=seat.worker), NAMESPACE))
            except ValueError:  # Ray knows no such actor, or it is dead
                absent.append(seat)
        return tuple(absent)

    def _add(self, seat: Seat, handle: Any) -> None:
        with self._lock:
            self._members[seat.worker] = _Member(handle=handle, seat=seat)
        self._listener.add(seat.worker, handle=handle, build=handle.build.remote(self._hiring.epoch))

    def _launch(self, seat: Seat) -> Any:
        hiring = self._hiring
        resources = {"num_cpus": hiring.cpus, "num_gpus": 1 if hiring.device == "cuda" else 0}
        return RemoteWorker.options(
            name=actor_name(run=hiring.run, worker=seat.worker),
            namespace=NAMESPACE,
            lifetime="detached",
            scheduling_strategy=NodeAffinitySchedulingStrategy(seat.node, soft=False),
            **resources,
        ).remote(
            hiring.settings_of(seat),
            factory=hiring.factory,
            threads=hiring.cpus,
            orphan_lease_s=hiring.orphan_lease_s,
        )

    def _born(self, birth: Birth) -> None:
        with self._lock:
            member = self._members.get(birth.worker)
            if member is not None and sys.platform == "linux" and birth.node == self._here:
                with suppress(ProcessLookupError):
                    member.pidfd = os.pidfd_open(birth.pid)
                    self._listener.mind(birth.worker, pidfd=member.pidfd)
        self._told_born(birth.worker)

    @property
    def names(self) -> tuple[WorkerId, ...]:
        """The workers that are not ended yet."""
        with self._lock:
            return tuple(self._members)

    def by_node(self) -> Counter[str]:
        """How many of them are on each node."""
        with self._lock:
            return Counter(member.seat.node for member in self._members.values())

    def node_of(self, worker: WorkerId) -> str:
        """The node of a worker that is not ended yet; empty for any other."""
        member = self._members.get(worker)
        return member.seat.node if member is not None else ""

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Of the workers that are not ended yet."""
        with self._lock:
            return tuple(member.seat for member in self._members.values())

    def send(self, worker: WorkerId, order: str, *arguments: object) -> None:
        """Call `order` of `worker`'s actor and return at once; a worker that is gone takes no orders."""
        member = self._members.get(worker)
        if member is not None:
            self._listener.watch(worker, getattr(member.handle, order).remote(self._hiring.epoch, *arguments))

    def stop(self, workers: Iterable[WorkerId]) -> None:
        """End these workers; blocks until their processes are gone.

        Raises: ClusterError naming those that do not go.
        """
        with self._lock:
            leaving = {w: self._members.pop(w) for w in tuple(workers) if w in self._members}
        for worker in leaving:
            self._listener.drop(worker)
        stopping = [member.handle.stop.remote(self._hiring.epoch) for member in leaving.values()]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=STOP_GRACE_S)
        self._kill(leaving)

    def kill(self, workers: Iterable[WorkerId]) -> None:
        """End these workers without asking."""
        with self._lock:
            leaving = {w: self._members.pop(w) for w in tuple(workers) if w in self._members}
        for worker in leaving:
            self._listener.drop(worker)
        self._kill(leaving)

    def close(self) -> None:
        """End all workers and stop listening."""
        self.stop(tuple(self._members))
        self._listener.close()

    def leave(self) -> None:
        """Stop listening; the workers are another controller's now."""
        self._listener.close()
        for member in self._members.values():
            if member.pidfd is not None:
                os.close(member.pidfd)

    def _kill(self, leaving: dict[WorkerId, _Member]) -> None:
        for member in leaving.values():
            ray.kill(member.handle, no_restart=True)
        there = self._still_there(leaving, until=time.monotonic() + RAY_KILL_S)
        for member in there.values():
            if member.pidfd is not None:  # stopped, or its node's Ray does not answer
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(member.pidfd, signal.SIGKILL)
        there = self._still_there(there, until=time.monotonic() + GONE_LIMIT_S)
        for member in leaving.values():
            if member.pidfd is not None:
                os.close(member.pidfd)
        if there:
            names = ", ".join(there)
            raise ClusterError(f"workers {names} were killed and do not end", workers=tuple(there))

    def _still_there(self, members: dict[WorkerId, _Member], *, until: float) -> dict[WorkerId, _Member]:
        """Those whose process has not ended by `until`; returns as soon as all have."""
        epoch = self._hiring.epoch
        return {worker: member for worker, member in members.items() if not _ends(member, epoch=epoch, until=until)}


def _ends(member: _Member, *, epoch: int, until: float) -> bool:
    """Wait until the process is gone, for the kernel where it knows, else for Ray."""
    left_s = max(0.0, until - time.monotonic())
    if member.pidfd is not None:
        return bool(select.select([member.pidfd], [], [], left_s)[0])
    try:
        ray.get(member.handle.beat.remote(epoch), timeout=left_s)
    except TimeoutError:  # Ray's own, which is one of these
        return False
    except RayError:
        return True
    return False


def end_leftovers(run: str, *, but: Iterable[WorkerId] = ()) -> list[str]:
    """Kill the workers that an earlier controller of `run` left behind, `but` these; returns their names."""
    prefix, kept = actor_name(run=run, worker=""), {actor_name(run=run, worker=worker) for worker in but}
    named = ray.util.list_named_actors(all_namespaces=True)
    names = [actor["name"] for actor in named if actor["namespace"] == NAMESPACE]
    left = [name for name in names if name.startswith(prefix) and name not in kept]
    for name in left:
        with suppress(ValueError):  # it ended meanwhile
            ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
    return left
