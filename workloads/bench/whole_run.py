"""What the pairs do not see, from one whole `raymega train`: waits for data, stalls of checkpoints, the controller.

    data wait           seconds in which the reporting worker waits for a batch     } of its step's seconds
    checkpoint stall    seconds in which a step is held up by its snapshot          }
    controller          processor seconds of the controller's process, a step (data pipeline and feeding included)

The worker's seconds stand in the run's journal; the process is watched from outside, against the lines of its metrics.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from raymega.control.events import StepCommitted
from raymega.driver.records.journal import read_entries
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.tenure import journals
from workloads.bench.settings import Settings

LIMIT_S = 300.0
LOOK_S = 0.2
NAME = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """Shares of the steps' seconds after the warm-up; `controller_s` of processor time a step."""

    steps: int
    step_s: float
    saves: int
    data_share: float
    checkpoint_share: float
    controller_s: float


def whole_run(settings: Settings, *, folder: Path) -> WholeRun:
    """Train the preset `nano` with the settings' changes, in `folder`.

    Raises: RuntimeError with the end of the log if the run fails.
    """
    changes = (*settings.run_set, f"run.dir={folder}", f"run.name={NAME}")
    command = [str(Path(sys.executable).with_name("raymega")), "train", "nano"]
    log_file, run = folder / "run.log", RunDirectory(path=folder / NAME)
    with log_file.open("w") as log:
        process = subprocess.Popen(
            [*command, *(word for change in changes for word in ("--set", change))],
            stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        try:
            samples = list(_watched(process, run))
        finally:
            process.terminate()
            code = process.wait(LIMIT_S)
    if code:
        raise RuntimeError(f"the run ended with {code}:\n{log_file.read_text()[-4000:]}")
    return _figures(_committed(run)[settings.warm_up_steps :], [s for s in samples if s[0] >= settings.warm_up_steps])


def _watched(process: subprocess.Popen, run: RunDirectory) -> Iterator[tuple[int, float]]:
    """(steps committed, processor seconds of the controller), until the run has ended."""
    controller: psutil.Process | None = None
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until:
        time.sleep(LOOK_S)
        steps = run.metrics.read_bytes().count(b"\n") if run.metrics.exists() else 0
        if not steps:
            continue
        controller = controller or _controller(process.pid)
        try:
            times = controller.cpu_times()
        except psutil.NoSuchProcess:
            continue  # the run is over
        yield steps, times.user + times.system


def _controller(client_pid: int) -> psutil.Process:
    """The actor's process; Ray names it by its class."""
    for process in psutil.Process(client_pid).children(recursive=True):
        if "ControllerActor" in " ".join(process.cmdline()):
            return process
    raise RuntimeError("the run has steps, but no process of its controller is found")


def _committed(run: RunDirectory) -> list[StepCommitted]:
    entries = (entry for file in journals(run.journal) for entry in read_entries(file))
    return [entry.event for entry in entries if isinstance(entry.event, StepCommitted)]


def _figures(steps: list[StepCommitted], samples: list[tuple[int, float]]) -> WholeRun:
    total_s = sum(step.step_s for step in steps)
    committed, processor_s = np.array(samples).T
    return WholeRun(
        steps=len(steps),
        step_s=total_s / len(steps),
        saves=sum(step.seconds["snapshot"] > 0 for step in steps),
        data_share=sum(step.seconds["wait_batch"] for step in steps) / total_s,
        checkpoint_share=sum(step.seconds["snapshot"] for step in steps) / total_s,
        controller_s=float(np.polyfit(committed, processor_s, 1)[0]),
    )
