"""The world in which local groups meet, and how a test breaks it on purpose.

kill(w)        as if the process of w had died: peers fail at once, w's own threads get `WorkerKilled`
sever(a, b)    as if the connections between a and b had been cut
hold(w)        as if w had been stopped (SIGSTOP): its calls do not begin or end until `release(w)`
on_op          called as (worker, group key, operation) before each call, from the worker's own thread;
               it may call any of the above
unbuffered     a send is complete only when its receive is posted; finds programs that deadlock
"""

import threading
from collections.abc import Callable

from raymega.comm.group import GroupSpec
from raymega.comm.local_room import Room
from raymega.plan.plan import WorkerId

OpObserver = Callable[[WorkerId, str, str], None]


class WorkerKilled(BaseException):
    """Ends the thread of a worker that `LocalHub.kill` has killed; no code of a worker catches it."""


class LocalHub:
    """The world in which local groups meet, and in which tests break them."""

    def __init__(self, *, unbuffered: bool = False, on_op: OpObserver | None = None) -> None:
        self.unbuffered = unbuffered
        self.on_op = on_op
        self.lock = threading.RLock()
        self.dead: set[WorkerId] = set()
        self._rooms: dict[tuple[int, str], Room] = {}
        self._held: set[WorkerId] = set()
        self._released = threading.Condition(self.lock)

    def kill(self, worker: WorkerId) -> None:
        """Every group that `worker` has joined breaks; its own calls raise `WorkerKilled`."""
        with self.lock:
            self.dead.add(worker)
            self._held.discard(worker)
            self._break(lambda room: worker in _joined(room), f"connection closed by {worker}")
            self._released.notify_all()

    def sever(self, a: WorkerId, b: WorkerId) -> None:
        """Break every group that holds both."""
        with self.lock:
            self._break(lambda room: {a, b} <= _joined(room), f"the connection between {a} and {b} was cut")

    def hold(self, worker: WorkerId) -> None:
        with self.lock:
            self._held.add(worker)

    def release(self, worker: WorkerId) -> None:
        with self.lock:
            self._held.discard(worker)
            self._released.notify_all()

    def pass_gate(self, worker: WorkerId) -> None:
        """Wait while `worker` is held; raise if it is dead. The lock may be held by the caller."""
        with self.lock:
            while worker in self._held:
                self._released.wait()
            if worker in self.dead:
                raise WorkerKilled(worker)

    def room(self, spec: GroupSpec, *, generation: int) -> Room:
        """The meeting place of a group."""
        with self.lock:
            room = self._rooms.setdefault(
                (generation, spec.key), Room(key=spec.key, members=spec.members, lock=self.lock)
            )
            assert room.members == spec.members, f"{spec.key} has two lists of members"
            return room

    def forget(self, spec: GroupSpec, *, generation: int) -> None:
        with self.lock:
            self._rooms.pop((generation, spec.key), None)

    def _break(self, which: Callable[[Room], bool], reason: str) -> None:
        for room in self._rooms.values():
            if which(room):
                room.break_up(reason)


def _joined(room: Room) -> set[WorkerId]:
    return {room.members[rank] for rank in room.joined}
