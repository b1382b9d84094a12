"""The sides as processes of their own, and what is read of them from outside.

torchrun, ray-train   commits, pid-0, pid-1, ..      files that the program writes
raymega               metrics.jsonl, events.jsonl, journal, and the process that writes logs/worker-wK.log
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from raymega.control.events import WorkerBorn
from raymega.driver.records.journal import read_entries
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.tenure import journals
from workloads.recovery.toy import REPLICAS, SETS, Commit, Side, job_of_peer, read_commits, steps_in_a_row

LIMIT_S = 400.0
LOOK_S = 0.02
SETTLED_STEPS = 15  # before a kill
PEERS = {
    "torchrun": (
        "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(REPLICAS),
        "--max-restarts", "100", "-m", "workloads.recovery.peer",
    ),
    "ray-train": ("-m", "workloads.recovery.ray_train"),
}  # fmt: skip
SIDES = ("raymega", *PEERS)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "RAY_worker_niceness": "0",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1", "COLUMNS": "200",
}  # fmt: skip


@dataclass(kw_only=True)
class PeerSide:
    """A program whose workers are all started anew."""

    folder: Path

    def wait_until_whole(self, kills: int) -> None:
        wait_for(lambda: steps_in_a_row(self.commits()) >= SETTLED_STEPS, what=f"steps after {kills} kills")

    def victim(self) -> int:
        return int((self.folder / f"pid-{REPLICAS - 1}").read_text())

    def commits(self) -> list[Commit]:
        return read_commits(self.folder / "commits")

    def split(self, killed_t: float) -> dict[str, float]:
        return {}


@dataclass(kw_only=True)
class RaymegaSide:
    """A run of raymega with one standby, which takes the victim's place and is the next victim."""

    run: RunDirectory
    kills: int = 0

    def wait_until_whole(self, kills: int) -> None:
        self.kills = kills
        wait_for(lambda: self._count("Resized") == kills, what=f"whole again after {kills} kills")
        wait_for(lambda: f"w{REPLICAS + kills}" in self._born(), what="a warm standby")
        wait_for(lambda: steps_in_a_row(self.commits()) >= SETTLED_STEPS, what=f"steps after {kills} kills")

    def victim(self) -> int:
        log = self.run.logs / f"worker-w{REPLICAS - 1 + self.kills}.log"
        return next(p.pid for p in psutil.process_iter() if _writes_to(p, log))

    def commits(self) -> list[Commit]:
        told = ("WorkerLost", "GenerationLeft", "Resized")
        turns = [(line["t"], line["event"]) for line in self._events() if line["event"] in told]
        found, workers = list[Commit](), REPLICAS
        for record in read_lines(self.run.metrics):
            while turns and turns[0][0] <= record["t"]:
                workers = REPLICAS if turns.pop(0)[1] == "Resized" else REPLICAS - 1
            found.append(Commit(t=record["t"], step=record["step"], workers=workers))
        return found

    def split(self, killed_t: float) -> dict[str, float]:
        events = [line for line in self._events() if line["t"] > killed_t]
        sign = next(line for line in events if line["event"] in ("WorkerLost", "GenerationLeft"))
        repaired = next(line for line in events if line["event"] == "StepRepaired")
        resized = next(line for line in events if line["event"] == "Resized")
        return {
            "detect": sign["t"] - killed_t, "regroup": repaired["regroup_s"], "repair": repaired["repair_s"],
            "standby joins, pause": resized["actual_s"],
        }  # fmt: skip

    def _events(self) -> list[dict[str, Any]]:
        return list(read_lines(self.run.events)) if self.run.events.exists() else []

    def _count(self, event: str) -> int:
        return sum(line["event"] == event for line in self._events())

    def _born(self) -> set[str]:
        entries = (entry.event for file in journals(self.run.journal) for entry in read_entries(file))
        return {event.worker for event in entries if isinstance(event, WorkerBorn)}


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Side]:
    """Start the side `name` in `folder`; it ends with the block."""
    if name == "raymega":
        sets = (*SETS, "elastic.standbys=1", f"run.dir={folder}", "run.name=toy", "log.tensorboard=false")
        command = [str(Path(sys.executable).with_name("raymega")), "train", "nano"]
        command += [word for change in sets for word in ("--set", change)]
        side: Side = RaymegaSide(run=RunDirectory(path=folder / "toy"))
    else:
        job_of_peer().write(folder)
        command = [sys.executable, *PEERS[name], str(folder)]
        side = PeerSide(folder=folder)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for(lambda: process.poll() is not None or len(side.commits()) > 0, what="first commit")
            if process.poll() is not None:
                raise TimeoutError(f"it ended with {process.poll()}")
            yield side
        except TimeoutError as error:
            raise RuntimeError(f"{name}: {error}\n{(folder / 'log').read_text()[-4000:]}") from error
        finally:
            _end(process)


def wait_for(condition: Callable[[], bool], *, what: str) -> None:
    """Raises: TimeoutError naming what did not come."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"no {what} within {LIMIT_S:.0f} s")
        time.sleep(LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and see that all it has started has gone."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(30.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _, there = psutil.wait_procs(children, timeout=10.0)
    for child in there:
        child.kill()
    psutil.wait_procs(there, timeout=10.0)


def _writes_to(process: psutil.Process, file: Path) -> bool:
    try:
        return Path(f"/proc/{process.pid}/fd/1").readlink() == file
    except OSError:
        return False
