"""A head of Ray with its job server, begun as a user begins it: from a shell whose `python3` is not Ray's own."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import psutil

from raymega.driver.in_a_job import STOP_WAIT
from tests.waiting import eventually

LIMIT_S, LOOK_S = 120.0, 0.1
STARTS = 3  # Ray gives itself 30 s to come up, which a busy machine may exceed
UP = "Ray runtime started"
MARK = "RAYMEGA_TEST_CLUSTER"
STOP_WAIT_S = 1  # no time to save: every job that is stopped hands its run over


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


class JobCluster:
    """`ray start --head --block`, and every process below it."""

    def __init__(self) -> None:
        self.mark, self.temp = uuid.uuid4().hex, tempfile.mkdtemp(prefix="j-", dir="/tmp")  # short: sockets lie in it
        port, dashboard, agent = free_ports(3)
        self.address, self.dashboard = f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}"
        self.env = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONPATH")}
        self.env |= {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", MARK: self.mark, STOP_WAIT: str(STOP_WAIT_S)}
        self.log = Path(self.temp) / "head.txt"
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}",
            "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
            "--node-ip-address=127.0.0.1", "--num-cpus=4", f"--temp-dir={self.temp}", "--disable-usage-stats",
            "--object-store-memory=100000000",
        ]  # fmt: skip
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(command, env=self.env, stdout=out, stderr=subprocess.STDOUT)

    @classmethod
    def up(cls) -> "JobCluster":
        """One that is up; those that did not come up are ended before."""
        for _ in range(STARTS - 1):
            cluster = cls()
            if cluster.comes_up():
                return cluster
            cluster.close()
        last = cls()
        assert last.comes_up(), last.log.read_text()
        return last

    def comes_up(self) -> bool:
        """Whether Ray says that it has started, before it gives up."""
        eventually(
            lambda: self.process.poll() is not None or UP in self.log.read_text(), limit_s=LIMIT_S, look_s=LOOK_S
        )
        return self.process.poll() is None

    def close(self) -> None:
        """End exactly what this has begun."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in self.processes():
            process.kill()
        eventually(lambda: self.processes() == [], limit_s=20.0, look_s=LOOK_S)
        subprocess.run(["rm", "-rf", self.temp], check=True)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Living processes below it whose command line has one of `words`; without words, all."""
        return [p for p in psutil.process_iter() if self._is_ours(p) and (not words or _says(p, words))]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            return f"{MARK}={self.mark}".encode() in environment and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, psutil.NoSuchProcess):
            return False


def _says(process: psutil.Process, words: tuple[str, ...]) -> bool:
    try:
        said = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
    return any(word in said for word in words)
