"""`raymega train` as a process of its own, and all that it brings into the world."""

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import yaml

from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.lock import read_owner
from raymega.driver.records.run_dir import RunDirectory
from tests.waiting import eventually

LIMIT_S = 250.0
MARK = "RAYMEGA_TEST"
TINY = {
    "run": {"name": "tiny", "device": "cpu"},
    "model": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2},
    "data": {"tokenizer": "byte", "seq_len": 32},
    "parallelism": {"data_parallel_size": 2},
    "training": {"steps": 100_000, "batch_size": 8, "micro_batch_size": 4},
    "log": {"tensorboard": False},
}


class Client:
    """A client in a session of its own, so that signals reach it as a terminal sends them: to its whole group."""

    def __init__(self, path: Path, *sets: str, env: dict[str, str] | None = None) -> None:
        self.shared_memory = set(Path("/dev/shm").iterdir())
        self.temp = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # short: sockets lie in it
        self.mark = uuid.uuid4().hex
        self.run_dir = RunDirectory(path=path / "runs" / "tiny")
        config = path / "tiny.yaml"
        config.write_text(yaml.safe_dump({**TINY, "run": {**TINY["run"], "dir": str(path / "runs")}}))
        self.output = path / "output.txt"
        command = [str(Path(sys.executable).parent / "raymega"), "train", str(config)]
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, *(word for value in sets for word in ("--set", value))],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temp), **(env or {})},
            )

    def wait_for_step(self, step: int) -> None:
        self._await(lambda: self.steps() >= step)

    def wait_for_checkpoint(self) -> None:
        self._await(lambda: self.checkpoints() != [])

    def wait_for_event(self, name: str) -> dict[str, Any]:
        """The last one of the name in events.jsonl, as soon as there is one."""
        self._await(lambda: self.events(name) != [])
        return self.events(name)[-1]

    def _await(self, holds: Callable[[], bool]) -> None:
        eventually(lambda: holds() or self.process.poll() is not None, limit_s=LIMIT_S, look_s=0.05)
        assert holds(), f"it ended with {self.process.returncode}: {self.said()}"

    def steps(self) -> int:
        return max((line["step"] for line in read_lines(self.run_dir.metrics)), default=0)

    def checkpoints(self) -> list[int]:
        manifests = self.run_dir.checkpoints.glob("step-*/manifest.json")
        return sorted(int(manifest.parent.name.removeprefix("step-")) for manifest in manifests)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """As a batch system does it, or `timeout`: the signal goes to all that were started in the group."""
        os.killpg(self.process.pid, signal.SIGTERM)

    def end(self) -> int:
        return self.process.wait(timeout=LIMIT_S)

    def said(self) -> str:
        return self.output.read_text()[-4000:]

    def worker(self, name: str) -> psutil.Process:
        """The process of a worker: it is the one that writes its log."""
        log = str(self.run_dir.path / "logs" / f"worker-{name}.log")
        return next(p for p in psutil.process_iter() if _is_marked(p, f"{MARK}={self.mark}") and _writes_to(p, log))

    def controller(self) -> psutil.Process:
        """The process that holds the lock of the run's directory."""
        owner = read_owner(self.run_dir.lock)
        assert owner is not None, "a run is alive"
        return psutil.Process(owner.pid)

    def records(self) -> list[dict[str, Any]]:
        return list(read_lines(self.run_dir.metrics))

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """The lines of events.jsonl, all or those of one name."""
        return [event for event in read_lines(self.run_dir.events) if name in ("", event["event"])]

    def offspring(self) -> list[psutil.Process]:
        """Every process that this client has started, directly or not, and that lives."""
        return [process for process in psutil.process_iter() if _is_marked(process, f"{MARK}={self.mark}")]

    def left_within(self, limit_s: float) -> list[str]:
        """What is left of it once its processes had `limit_s` to end: these, shared memory, directories, the lock."""
        psutil.wait_procs(self.offspring(), timeout=limit_s)
        lock = [str(self.run_dir.lock)] if self.run_dir.lock.exists() else []
        files = {*self.temp.iterdir(), *Path("/dev/shm").iterdir()} - self.shared_memory
        return [*(f"{process.pid} {process.name()}" for process in self.offspring()), *map(str, files), *lock]


def _writes_to(process: psutil.Process, file: str) -> bool:
    try:
        return Path(f"/proc/{process.pid}/fd/1").readlink() == Path(file)
    except OSError:
        return False


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        return mark.encode() in environment and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.NoSuchProcess):
        return False
