"""A job is stopped while its run cannot be saved yet: its entry point is gone in time, and the run ends saved."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import ray
import yaml

from raymega.driver.cluster.in_a_job import JOB, STOP_WAIT_S
from raymega.driver.finding import end_of
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.run_dir import RunDirectory
from tests.end_to_end.client import TINY
from tests.house.rooms import ROOT
from tests.waiting import await_end, eventually

LIMIT_S, LOOK_S = 120.0, 0.05
FROZEN_S = 60.0  # a lease: a worker that is silent for less is not lost


class Entry:
    """`workloads/train.py` as the entry point of a job, on the Ray that the tests share."""

    def __init__(self, folder: Path) -> None:
        self.run, config = RunDirectory(path=folder / "tiny"), folder / "tiny.yaml"
        own = {
            "run": TINY["run"] | {"dir": str(folder)},
            "parallelism": {},
            "elastic": {"lease_s": FROZEN_S, "orphan_lease_s": 2 * FROZEN_S},
        }
        config.write_text(yaml.safe_dump(TINY | own))
        env = os.environ | {JOB: "{}", "RAY_ADDRESS": ray.get_runtime_context().gcs_address, "PYTHONPATH": str(ROOT)}
        self.said = folder / "said.txt"
        with self.said.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "workloads/train.py", str(config)], cwd=ROOT, env=env, stdout=out, stderr=out
            )

    def steps(self) -> int:
        return max((line["step"] for line in read_lines(self.run.metrics)), default=0)

    def freeze(self, *, after: int) -> psutil.Process:
        """Stop the newest worker, so that no step ends and nothing is saved."""
        eventually(lambda: self.steps() >= after or self.process.poll() is not None, limit_s=LIMIT_S, look_s=LOOK_S)
        assert self.process.poll() is None, self.said.read_text()
        log = max(self.run.logs.glob("worker-*.log"), key=lambda log: log.stat().st_mtime)
        worker = next(p for p in psutil.process_iter() if _writes_to(p, log))
        worker.suspend()
        return worker

    def saved(self) -> list[int]:
        manifests = self.run.checkpoints.glob("step-*/manifest.json")
        return sorted(int(manifest.parent.name.removeprefix("step-")) for manifest in manifests)

    def end_s(self, *, kill_after_s: float | None) -> float:
        """Seconds from a SIGTERM to its end; `kill_after_s`: a SIGKILL follows."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=LIMIT_S if kill_after_s is None else kill_after_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return time.monotonic() - began


def _writes_to(process: psutil.Process, file: Path) -> bool:
    try:
        return Path(f"/proc/{process.pid}/fd/1").readlink() == file
    except OSError:
        return False


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], Entry]]:
    entries: list[Entry] = []
    yield lambda: entries.append(Entry(tmp_path)) or entries[-1]
    for entry in entries:
        entry.process.kill()
        entry.process.wait()


def ends_saved(entry: Entry, *, worker: psutil.Process) -> None:
    """Once it can."""
    worker.resume()
    eventually(lambda: not entry.run.lock.exists(), limit_s=LIMIT_S, look_s=LOOK_S)
    assert (end_of(entry.run)["exit_code"], entry.saved()[-1]) == (75, entry.steps())
    await_end(worker.pid, limit_s=LIMIT_S)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_the_entry_point_is_gone_in_time_and_its_run_is_saved_without_it(begin: Callable[[], Entry]):
    first = begin()
    worker = first.freeze(after=3)
    took_s = first.end_s(kill_after_s=None)
    print(f"SIGTERM to the entry point's end: {took_s:.2f} s of {STOP_WAIT_S:g} s")
    assert (first.process.returncode, took_s < STOP_WAIT_S) == (143, True), first.said.read_text()
    assert "is handed over to its controller" in first.said.read_text()
    assert (first.saved(), first.run.lock.exists()) == ([], True), "nothing can be saved yet"
    ends_saved(first, worker=worker)

    again = begin()
    worker = again.freeze(after=first.steps() + 3)
    took_s = again.end_s(kill_after_s=0.7)  # the stop is passed on within half a second
    print(f"SIGTERM, SIGKILL amid the save, to the entry point's end: {took_s:.2f} s")
    assert again.process.returncode == -signal.SIGKILL, again.said.read_text()
    ends_saved(again, worker=worker)
