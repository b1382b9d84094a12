"""A contender stands by, is handed the rows of a block, and runs it when it is told to.

with peer_of(job, folder=...) as peer:      processes are up, and wait
    peer.prepare((0, 4))                    rows of steps 0 .. 3 are made or sent: not timed
    block = peer.run()                      seconds, and the loss of each step
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import psutil
import torch

from workloads.bench.peer import Job

LIMIT_S = 300.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of steps: its wall time, the processor time of all its workers, and the loss of each step."""

    seconds: float
    processor_s: float
    losses: tuple[float, ...]

    @property
    def step_s(self) -> float:
        return self.seconds / len(self.losses)


class Contender(Protocol):
    """Both sides, as the alternation sees them."""

    def prepare(self, steps: tuple[int, int]) -> None:
        """Have the rows of steps [first, end) ready."""

    def run(self) -> Block:
        """Do the prepared steps."""


class Processors:
    """The processor time of some processes, seen from outside."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]

    @property
    def seconds(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return sum(t.user + t.system for t in times)


class Peer:
    """The processes of a torch program, one connection to each."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self._processors = Processors(connection.recv() for connection in connections)

    def prepare(self, steps: tuple[int, int]) -> None:
        self._tell(steps)
        self._answers()

    def run(self) -> Block:
        used_s, began = self._processors.seconds, time.perf_counter()
        self._tell("go")
        parts = self._answers()
        return Block(
            seconds=time.perf_counter() - began,
            processor_s=self._processors.seconds - used_s,
            losses=tuple(sum(losses) for losses in zip(*parts, strict=True)),
        )

    def end(self) -> None:
        self._tell(None)

    def _tell(self, word: object) -> None:
        for connection in self._connections:
            connection.send(word)

    def _answers(self) -> list[list[float]]:
        return [connection.recv() for connection in self._connections]


@contextmanager
def peer_of(job: Job, *, folder: Path) -> Iterator[Peer]:
    """Start the peer's processes; they end with the block, and when this process dies."""
    file, log_file = folder / "job.pt", folder / "peer.log"
    torch.save(job, file)
    size = 1 if job.contest == "one" else 2
    command = [sys.executable, *(TORCHRUN if size > 1 else ()), "-m", "workloads.bench.peer", str(file)]
    with _listening(job.address) as listener, log_file.open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=subprocess.STDOUT)
        try:
            peer = Peer([_accepted(listener, process, log_file=log_file) for _ in range(size)])
            yield peer
            peer.end()
            process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait()


@contextmanager
def _listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        listener.settimeout(0.5)
        yield listener


def _accepted(listener: socket.socket, process: subprocess.Popen, *, log_file: Path) -> Connection:
    """The next rank that reports. Raises: RuntimeError with the peer's log if it ends or is late."""
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until:
        with suppress(TimeoutError):
            connected, _ = listener.accept()
            connected.setblocking(True)
            return Connection(connected.detach())
    raise RuntimeError(f"the peer has not come up:\n{log_file.read_text()[-4000:]}")
