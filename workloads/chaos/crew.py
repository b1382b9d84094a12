"""Worker processes that are forked in hundredths of a second, spoken to over pipes, and heard by one thread.

It stands where `driver.hands.worker_group` stands on Ray: the same calls, the same news, nothing decided.
"""

import multiprocessing
import multiprocessing.forkserver
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from raymega.control.states import Seat
from raymega.plan.plan import WorkerId
from raymega.worker.interface import Pulse, WorkerSettings
from workloads.chaos.child import BORN, live

TICK_S = 0.05
START_LIMIT_S = 60.0
SETTLE_S = 0.2  # from a pipe that breaks to the exit code


@dataclass(frozen=True, kw_only=True)
class News:
    """Who is told what, from the listening thread."""

    born: Callable[[WorkerId], None]
    pulse: Callable[[Pulse], None]
    lost: Callable[[WorkerId, str, float], None]


@dataclass(kw_only=True)
class _Member:
    process: BaseProcess
    pipe: Connection
    seat: Seat
    heard_at: float
    orders: "queue.SimpleQueue[Any]" = field(default_factory=queue.SimpleQueue)
    is_born: bool = False
    is_lost: bool = False


class Crew:
    """All workers of all runs that are made with it.

    `ended`: exit codes of the dead, None where it ended them; `struck`: who was sent a signal; `returned`: said
    something although it was given up, since its machine could not be reached.
    """

    def __init__(
        self, settings_of: Callable[[Seat], WorkerSettings], *, calls: str, lease_s: float, wait_s: float
    ) -> None:
        self._settings_of, self._calls, self._lease_s, self._wait_s = settings_of, calls, lease_s, wait_s
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a group that is cut on purpose is no news
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["workloads.chaos.child", "workloads.chaos.arena"])
        self._members: dict[WorkerId, _Member] = {}
        self._lock = threading.Lock()
        self.news: News | None = None
        self.ended: dict[WorkerId, int | None] = {}
        self.struck = set[WorkerId]()
        self._out_of_reach = set[WorkerId]()
        self._given_up: dict[WorkerId, _Member] = {}
        self.returned = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="crew", daemon=True)
        self._thread.start()

    @property
    def names(self) -> tuple[WorkerId, ...]:
        with self._lock:
            return tuple(self._members)

    def start(self, seats: Iterable[Seat]) -> None:
        """Start a process for each seat; one that is there is told of again, as it is up."""
        for seat in seats:
            member = self._members.get(seat.worker)
            if member is None:
                self._launch(seat)
            elif member.is_born and self.news is not None:
                self.news.born(seat.worker)

    def _launch(self, seat: Seat) -> None:
        ours, theirs = self._context.Pipe()
        args = (theirs, self._settings_of(seat), self._calls, self._wait_s)
        process = self._context.Process(target=live, args=args, name=seat.worker, daemon=True)
        process.start()
        theirs.close()
        member = _Member(process=process, pipe=ours, seat=seat, heard_at=time.monotonic())
        threading.Thread(target=_send_all, args=(member,), daemon=True).start()
        with self._lock:
            self._members[seat.worker] = member

    def send(self, worker: WorkerId, order: str, *arguments: object) -> None:
        member = self._members.get(worker)
        if member is not None:
            member.orders.put((order, arguments))

    def node_of(self, worker: WorkerId) -> str:
        member = self._members.get(worker)
        return member.seat.node if member is not None else ""

    def signal(self, worker: WorkerId, number: signal.Signals) -> bool:
        """Send a signal to a worker's process; whether there was one."""
        with self._lock:
            member = self._members.get(worker)
            if member is None or member.is_lost or member.process.pid is None:
                return False
            os.kill(member.process.pid, number)
            self.struck.add(worker)
            return True

    def strand(self, worker: WorkerId) -> None:
        """Stop a worker on a machine that cannot be reached: nobody can end it there, and it may come back."""
        self._out_of_reach.add(worker)
        self.signal(worker, signal.SIGSTOP)

    def wake(self, worker: WorkerId) -> None:
        """Let one that was given up go on as if nothing had been; what it says is heard."""
        os.kill(self._given_up[worker].process.pid or 0, signal.SIGCONT)

    def end_node(self, node: str) -> None:
        """Send SIGKILL to all that runs on `node`."""
        for worker in self.names:
            if self.node_of(worker) == node:
                self.signal(worker, signal.SIGKILL)

    def process_of(self, worker: WorkerId) -> BaseProcess:
        return self._members[worker].process

    def kill(self, workers: Iterable[WorkerId]) -> None:
        """End these for good, and see that they are gone."""
        for worker in tuple(workers):
            with self._lock:
                member = self._members.pop(worker, None)
            if member is None:
                continue
            if worker in self._out_of_reach:
                self._given_up[worker] = member
                continue
            member.process.join(SETTLE_S if member.is_lost else 0.0)
            by_itself = not member.process.is_alive()
            member.process.kill()
            member.process.join(10.0)
            assert not member.process.is_alive(), f"{worker} was killed and does not end"
            self.ended[worker] = member.process.exitcode if by_itself else None
            member.orders.put(None)
            member.process.close()  # its pipe is closed with its last reader, who may be in the middle of a word

    stop = kill

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._out_of_reach.clear()
        self._members |= self._given_up
        self.kill(self.names)

    def _listen(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                living = {name: member for name, member in self._members.items() if not member.is_lost}
                heard = {member.pipe: (name, member) for name, member in (living | self._given_up).items()}
            for pipe in wait(list(heard), timeout=TICK_S):
                self._hear(*heard[pipe])  # type: ignore[index]
            self._check_silence(tuple(heard.values()))

    def _hear(self, worker: WorkerId, member: _Member) -> None:
        try:
            said = member.pipe.recv()
        except (EOFError, OSError):
            self._given_up.pop(worker, None)
            self._lose(worker, member, "its process died")
            return
        if worker in self._given_up:
            self.returned.set()
        member.heard_at = time.monotonic()
        if self.news is None:
            return
        if said == BORN:
            member.is_born = True
            self.news.born(worker)
        else:
            self.news.pulse(said)

    def _check_silence(self, members: tuple[tuple[WorkerId, _Member], ...]) -> None:
        for worker, member in members:
            silent_s = time.monotonic() - member.heard_at
            if not member.is_lost and silent_s > (self._lease_s if member.is_born else START_LIMIT_S):
                if not member.pipe.poll():  # this thread may have been the one that was held up
                    self._lose(worker, member, f"silent for {silent_s:.1f} s")

    def _lose(self, worker: WorkerId, member: _Member, cause: str) -> None:
        if self._members.get(worker) is member and not member.is_lost:
            member.is_lost = True
            if self.news is not None:
                self.news.lost(worker, cause, time.monotonic() - member.heard_at)


@contextmanager
def fork_server() -> Iterator[None]:
    """Arenas within share the server that workers are forked from, which has loaded torch; it ends with the block."""
    try:
        yield
    finally:
        multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there is no public way


def was_killed(code: int | None) -> bool:
    """Whether a process ended by SIGKILL."""
    return code == -signal.SIGKILL


def _send_all(member: _Member) -> None:
    """Orders in their order; a process that is stopped takes none, and holds up nobody else."""
    while (order := member.orders.get()) is not None:
        try:
            member.pipe.send(order)
        except OSError:
            return
