"""A worker that trains nothing: it takes `WorkerApi`'s calls and commits a step every `STEP_S` seconds.

A step needs its batch where the worker has one coming; evaluation and saves are reported as done. None is committed
after N steps while there is a file RUNDIR/hold-N.
"""

import os
import threading
import time
from pathlib import Path

from raymega.worker.interface import (
    Assignment,
    GenerationBroken,
    Pulse,
    Ready,
    ShardsSaved,
    StepBatch,
    StepReport,
    WorkerSettings,
)
from raymega.worker.reports import Reports
from raymega.worker.time_sheet import TimeSheet

STEP_S = 0.02


class FakeWorker:
    def __init__(self, settings: WorkerSettings) -> None:
        self._sheet = TimeSheet()
        self.settings = settings
        self._reports = Reports()
        self._changed = threading.Condition()
        self._assignment: Assignment | None = None
        self._batches: dict[tuple[int, int], StepBatch] = {}
        self._until, self._save_at, self._committed, self._decided_in = 0, set[int](), 0, 0
        self._phase, self._left = "idle", 0
        self._stopped = False
        self._folder = Path(settings.run_dir)
        (self._folder / f"pid-{settings.worker}").write_text(str(os.getpid()))
        threading.Thread(target=self._live, daemon=True).start()

    def start(self, assignment: Assignment) -> None:
        with self._changed:
            self._assignment, self._until, self._save_at = assignment, assignment.step, set()
            self._changed.notify_all()

    def feed(self, generation: int, batches: tuple[StepBatch, ...]) -> None:
        with self._changed:
            self._batches.update({(generation, batch.step): batch for batch in batches if batch.split == "train"})
            self._changed.notify_all()

    def grant(
        self, generation: int, until_step: int, save_at: tuple[int, ...], rates: object = (), full_at: object = ()
    ) -> None:
        with self._changed:
            if self._assignment is not None and generation == self._assignment.generation:
                self._until = max(self._until, until_step)
                self._save_at.update(save_at)
                if self._committed in save_at:
                    self._save(self._committed, generation)
                self._changed.notify_all()

    def pulse(self, since: int, wait_s: float) -> Pulse:
        reports = self._reports.since(since, wait_s=wait_s)
        generation = self._assignment.generation if self._assignment else 0
        return Pulse(
            worker=self.settings.worker, generation=generation, committed=self._committed, phase=self._phase,
            reports=reports, rss_bytes=1, device_bytes=0, spent=self._sheet.spent,
        )  # fmt: skip

    def abort(self, generation: int, lost: tuple[str, ...] = ()) -> None:
        with self._changed:
            if generation > self._left and (self._assignment is None or self._assignment.generation <= generation):
                self._left, self._assignment = generation, None
                said = GenerationBroken(
                    generation=generation, reason="told to leave", committed=self._committed,
                    decided_in=self._decided_in,
                )  # fmt: skip
                self._reports.add(said)
                self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._reports.close()

    def _live(self) -> None:
        while not self._stopped:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._assignment is not None)
                assignment = self._assignment
            if assignment is not None:
                self._committed = assignment.step
                self._decided_in = self._decided_in if assignment.keep_state else 0
                self._reports.add(Ready(generation=assignment.generation, committed=self._committed, seconds={}))
                self._train(assignment)

    def _train(self, assignment: Assignment) -> None:
        plan, me = assignment.plan, self.settings.worker
        needs_batch = plan.coord_of(me).stage in (0, plan.mesh.pp - 1)

        def may_run() -> bool:
            has_batch = (assignment.generation, self._committed) in self._batches or not needs_batch
            return self._stopped or self._assignment is not assignment or (self._committed < self._until and has_batch)

        while True:
            with self._changed:
                self._changed.wait_for(may_run)
                if self._stopped or self._assignment is not assignment:
                    return
            time.sleep(STEP_S)
            if not (self._folder / f"hold-{self._committed}").exists():
                self._commit(assignment, rank=plan.workers.index(me))

    def _commit(self, assignment: Assignment, *, rank: int) -> None:
        with self._changed:
            if self._assignment is not assignment:
                return
            self._committed += 1
            step, generation = self._committed, assignment.generation
            self._decided_in = generation
            self._batches.pop((generation, step - 1), None)
        if rank == 0:
            self._reports.add(StepReport(
                step=step, generation=generation, loss=1 / step, grad_norm=1.0, lr=1e-3, tokens=64, skipped=False,
                step_s=STEP_S, t=time.time(), seconds={},
            ))  # fmt: skip
        if step in self._save_at:
            self._save(step, generation)

    def _save(self, step: int, generation: int) -> None:
        self._reports.add(ShardsSaved(step=step, generation=generation, files=(), stall_s=0.0, write_s=0.0))
