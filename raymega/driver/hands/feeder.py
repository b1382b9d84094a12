"""Sends batches ahead to the workers that need them: the first and the last stage of each replica.

    stream of whole batches, by step          in a thread of its own
       |  cut into micro-batches, by the plan's routes
       |  kept until their step is committed, for a plan that changes meanwhile
       v
    feed(generation, batches)                 at most a window ahead of what is committed

Only the micro-batches that a worker computes go to it. Those of a step are one value for all shards of a team, and
for the last stage as for the first; a large one is put into the object store once and travels by reference.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import ray

from raymega.driver.process.threads import Failed, start_thread
from raymega.plan.plan import Plan, WorkerId
from raymega.worker.interface import MicrobatchRows, Split, StepBatch

WINDOW_BYTES = 64 * 2**20
SHORTEST_WINDOW, LONGEST_WINDOW = 2, 16  # steps
INLINE_BYTES = 64 * 2**10  # measured: below it a call with the bytes in it is as fast as one with a reference


class Batch(Protocol):
    """A whole batch, as the data streams give it (`driver.hands.data_stream`)."""

    @property
    def step(self) -> int: ...
    @property
    def samples(self) -> np.ndarray: ...
    @property
    def ids(self) -> np.ndarray: ...
    @property
    def mask(self) -> np.ndarray | None: ...
    @property
    def trained_tokens(self) -> int: ...


class Stream(Protocol):
    """Batches in order. Abandoned by `close`."""

    def __iter__(self) -> Iterator[Batch]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where batches come from: `train(step)` starts at any step; `valid()` gives all of an evaluation, once."""

    train: Callable[[int], Stream]
    valid: Callable[[], Stream]
    steps: int


Send = Callable[[WorkerId, int, tuple[object, ...]], None]  # worker, generation, batches or references


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """For whom batches are cut now."""

    generation: int
    plan: Plan


class Feeder:
    """Feeds the newest generation it was told of. `make_sources` is called in the feeder's thread."""

    def __init__(self, make_sources: Callable[[], Sources], *, send: Send, failed: Failed) -> None:
        self._make_sources, self._send = make_sources, send
        self._sources: Sources
        self._changed = threading.Condition()
        self._target: _Target | None = None
        self._next, self._committed, self._window = 0, 0, SHORTEST_WINDOW
        self._ahead: int | None = None
        self._evaluations: list[tuple[_Target, int]] = []
        self._kept: dict[int, Batch] = {}
        self._stream: Stream | None = None
        self._batches: Iterator[Batch] = iter(())
        self._closed = False
        self._thread = start_thread(self._run, name="feeder", failed=failed)

    def read_ahead(self, step: int) -> None:
        """Have the first batches from index `step` on at hand, while there is nobody yet to send them to."""
        with self._changed:
            self._ahead = step
            self._changed.notify_all()

    def feed_from(self, step: int, *, generation: int, plan: Plan) -> None:
        """Send the steps from index `step` on to the workers of `plan`."""
        with self._changed:
            self._target = _Target(generation=generation, plan=plan)
            self._next, self._committed = step, step
            self._evaluations = [e for e in self._evaluations if e[0].generation == generation]
            self._changed.notify_all()

    def evaluate(self, after_step: int, *, generation: int, plan: Plan) -> None:
        """Send the validation split, to be evaluated after `after_step` committed steps."""
        with self._changed:
            self._evaluations.append((_Target(generation=generation, plan=plan), after_step))
            self._changed.notify_all()

    def committed(self, step: int) -> None:
        """So many steps are committed: their batches are not needed any more."""
        with self._changed:
            self._committed = max(self._committed, step)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._sources = self._make_sources()  # here, since it loads Ray Data and takes seconds
            while (work := self._next_work()) is not None:
                work()
        finally:
            if self._stream is not None:
                self._stream.close()

    def _next_work(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._evaluations or self._may_feed() or self._ahead is not None
            )
            if self._closed:
                return None
            if self._ahead is not None:
                first, self._ahead = self._ahead, None
                steps = range(first, min(first + SHORTEST_WINDOW, self._sources.steps))
                return lambda: self._read_all(steps)
            if self._evaluations:
                target, after_step = self._evaluations.pop(0)
                return lambda: self._feed_evaluation(target, after_step)
            assert self._target is not None, "only with a target may be fed"
            target, steps = self._target, range(self._next, self._limit())
            self._next = steps.stop
            return lambda: self._feed_steps(target, steps)

    def _limit(self) -> int:
        return min(self._sources.steps, self._committed + self._window)

    def _may_feed(self) -> bool:
        """Whether half a window has room, or the last steps: so a call to a worker brings several steps."""
        if self._target is None:
            return False
        room = self._limit() - self._next
        return room >= self._window // 2 or (room > 0 and self._limit() == self._sources.steps)

    def _feed_steps(self, target: _Target, steps: range) -> None:
        parcels: dict[WorkerId, list[object]] = {}
        for step in steps:
            batch = self._batch(step)
            for worker, parcel in _parcels(target.plan, batch, split="train", after_step=step, last=False).items():
                parcels.setdefault(worker, []).append(parcel)
        for old in [kept for kept in self._kept if kept < self._committed]:
            del self._kept[old]
        for worker, parcel_list in parcels.items():
            self._send(worker, target.generation, tuple(parcel_list))

    def _read_all(self, steps: range) -> None:
        for step in steps:
            self._batch(step)

    def _batch(self, step: int) -> Batch:
        batch = self._kept.get(step)
        if batch is None:
            batch = self._kept[step] = self._read(step)
            self._window = window_steps(batch.ids.nbytes)
        return batch

    def _read(self, step: int) -> Batch:
        """The batch of `step`: the stream's next one, or the first of a stream that starts there."""
        batch = next(self._batches, None)
        if batch is None or batch.step != step:
            if self._stream is not None:
                self._stream.close()
            self._stream = self._sources.train(step)
            self._batches = iter(self._stream)
            batch = next(self._batches)
        assert batch.step == step, "a stream starts where it is told to and goes on without gaps"
        return batch

    def _feed_evaluation(self, target: _Target, after_step: int) -> None:
        with closing(self._sources.valid()) as stream:
            batches = iter(stream)
            batch = next(batches, None)
            while batch is not None:
                following = next(batches, None)
                parcels = _parcels(target.plan, batch, split="valid", after_step=after_step, last=following is None)
                for worker, parcel in parcels.items():
                    self._send(worker, target.generation, (parcel,))
                batch = following


def _parcels(plan: Plan, batch: Batch, *, split: Split, after_step: int, last: bool) -> dict[WorkerId, object]:
    """What each worker gets of a batch: the same value, or reference, where it is the same micro-batches."""
    made: dict[tuple[int, ...], object] = {}
    needs = receivers(plan, rows=len(batch.ids))
    for microbatches in needs.values():
        if microbatches not in made:
            cut = cut_batch(
                batch, microbatches, size=plan.microbatch_size, split=split, after_step=after_step, last=last
            )
            made[microbatches] = ray.put(cut) if batch.ids.nbytes > INLINE_BYTES else cut
    return {worker: made[microbatches] for worker, microbatches in needs.items()}


def window_steps(batch_bytes: int) -> int:
    """Steps to be ahead: enough to hide the way to the workers, bounded in bytes."""
    return max(SHORTEST_WINDOW, min(LONGEST_WINDOW, WINDOW_BYTES // max(1, batch_bytes)))


def receivers(plan: Plan, *, rows: int) -> dict[WorkerId, tuple[int, ...]]:
    """The workers that need rows, and the micro-batches each needs: inputs on the first stage, targets on the last."""
    there = range(-(-rows // plan.microbatch_size))
    needs: dict[WorkerId, tuple[int, ...]] = {}
    for stage in {0, plan.last_stage}:
        for replica in range(plan.mesh.dp):
            microbatches = tuple(m for m in plan.microbatches_of(replica=replica, stage=stage) if m in there)
            for rank in plan.team(replica, stage):
                needs[plan.workers[rank]] = microbatches
    return {worker: microbatches for worker, microbatches in needs.items() if microbatches}


def cut_batch(
    batch: Batch, microbatches: tuple[int, ...], *, size: int, split: Split, after_step: int, last: bool
) -> StepBatch:
    """The rows of some micro-batches of a whole batch; micro-batch m has rows m * size up to (m + 1) * size."""

    def rows_of(m: int) -> MicrobatchRows:
        rows = slice(m * size, (m + 1) * size)
        mask = None if batch.mask is None else batch.mask[rows]
        return MicrobatchRows(samples=batch.samples[rows], ids=batch.ids[rows], mask=mask)

    return StepBatch(
        split=split, step=batch.step, after_step=after_step, trained_tokens=batch.trained_tokens,
        microbatches={m: rows_of(m) for m in microbatches}, last=last,
    )  # fmt: skip
