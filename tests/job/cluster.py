"""A cluster that takes jobs, whose `python3` is not Ray's own: its shell has not activated the environment."""

import os
import socket
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from ray.job_submission import JobSubmissionClient

from raymega.driver.cluster.in_a_job import STOP_WAIT
from raymega.driver.submission import send_when_taken
from raymega.errors import ClusterError
from tests.house.rooms import ROOT
from tests.waiting import eventually

LIMIT_S, LOOK_S = 120.0, 0.1
MARK = "RAYMEGA_TEST_CLUSTER"
SHOWN = 3000  # characters of a log
STOP_WAIT_S = 1  # from SIGTERM to SIGKILL: no time to save, so that a job that is stopped hands its run over
STARTS = 3
AGENT_LIMIT_S = 40.0  # from a head that is up to one that takes jobs: its agent is another process, which may fail


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class JobCluster:
    """A head of Ray in a process of its own, and every process below it."""

    def __init__(self) -> None:
        self.mark, self.temp = uuid.uuid4().hex, tempfile.mkdtemp(prefix="j-", dir="/tmp")  # short: sockets lie in it
        port = free_port()
        self.dashboard, self.log = f"http://127.0.0.1:{port}", Path(self.temp) / "head.txt"
        self.env = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONPATH")}
        self.env |= {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", MARK: self.mark, STOP_WAIT: str(STOP_WAIT_S)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.job.head", str(port), self.temp],
                cwd=ROOT, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self.address = self.process.stdout.readline().strip()

    @classmethod
    def up(cls) -> "JobCluster":
        """One that takes jobs; those that did not come so far are ended before."""
        for _ in range(STARTS - 1):
            cluster = cls()
            if cluster.takes_jobs():
                return cluster
            cluster.close()
        last = cls()
        if not last.takes_jobs():
            told = last.said()
            last.close()
            pytest.fail(f"no head of Ray has taken a job in {STARTS} starts: {told}")
        return last

    def takes_jobs(self) -> bool:
        """Is the head up, and does its agent, which it needs for that, start a job that does nothing?"""
        if not self.address:
            return False
        try:
            send_when_taken(JobSubmissionClient(self.dashboard), tell=print, limit_s=AGENT_LIMIT_S, entrypoint="true")
        except (ClusterError, ConnectionError, RuntimeError):
            return False
        return True

    def said(self) -> str:
        """What the head and its agent wrote last."""
        logs = [self.log, *Path(self.temp).glob("session_2*/logs/dashboard_agent.*")]
        return "\n".join(f"{log.name}: {log.read_text()[-SHOWN:]}" for log in logs)

    def close(self) -> None:
        """End exactly what this has begun."""
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
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
