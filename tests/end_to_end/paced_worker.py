"""A worker that gets its batches one at a time, so that a tiny model trains long enough for things to happen."""

import queue
import threading
import time
from pathlib import Path
from typing import Any

from raymega.worker.interface import StepBatch, WorkerSettings
from raymega.worker.worker import Worker

PACE_S = 0.12
FLAG = "paced"  # while RUNDIR/paced is there


class PacedWorker:
    """A real worker, behind a queue of batches: it waits for each of its micro-batches, so that replicas help."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._worker, self._flag = Worker(settings), Path(settings.run_dir) / FLAG
        self._batches: queue.SimpleQueue[tuple[int, StepBatch]] = queue.SimpleQueue()
        threading.Thread(target=self._pass_on, name="pace", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def feed(self, generation: int, batches: tuple[StepBatch, ...]) -> None:
        for batch in batches:
            self._batches.put((generation, batch))

    def _pass_on(self) -> None:
        while True:
            generation, batch = self._batches.get()
            if self._flag.exists():
                time.sleep(PACE_S * len(batch.microbatches))
            self._worker.feed(generation, (batch,))
