"""Where a worker keeps the batches that were sent ahead, until the step that needs them has committed.

Keyed (split, step, micro-batch), never by arrival, and puts are idempotent: a batch that comes twice, late, or in
another order changes nothing. A batch is dropped only when its step is settled, so that a step can be done again.
"""

import threading
from collections.abc import Callable, Iterable

from raymega.worker.interface import MicrobatchRows, Split, StepBatch

BatchKey = tuple[Split, int, int]  # split, committed steps before it, index of the batch (valid) or 0 (train)


class BatchStore:
    """Batches by key; one thread takes, others put."""

    def __init__(self) -> None:
        self._batches: dict[BatchKey, StepBatch] = {}
        self._changed = threading.Condition()

    def put(self, batches: Iterable[StepBatch]) -> None:
        """Add batches; micro-batches of a known key are merged, a known one is kept unless it is of another size."""
        with self._changed:
            for batch in batches:
                key = key_of(batch)
                known = self._batches.get(key)
                self._batches[key] = batch if known is None else _merged(known, batch)
            self._changed.notify_all()

    def take(
        self, key: BatchKey, *, microbatches: tuple[int, ...], size: int, left: Callable[[], bool]
    ) -> StepBatch | None:
        """Wait for the batch of `key` with `microbatches` of `size` samples; None once `left()` is true (see `wake`).

        The batch stays in the store until `settle`.
        """
        with self._changed:
            while not left():
                batch = self._batches.get(key)
                if batch is not None and all(_has(batch, m, size=size) for m in microbatches):
                    return batch
                self._changed.wait()
            return None

    def wake(self) -> None:
        """Let every `take` look at its `left` again."""
        with self._changed:
            self._changed.notify_all()

    def settle(self, committed: int) -> None:
        """Drop what no later step can ask for: train and valid batches from before `committed` steps."""
        with self._changed:
            self._batches = {key: batch for key, batch in self._batches.items() if key[1] >= committed}

    def clear(self) -> None:
        """Forget everything: the position was moved back, other batches will come."""
        with self._changed:
            self._batches.clear()

    def __len__(self) -> int:
        return len(self._batches)


def key_of(batch: StepBatch) -> BatchKey:
    """Train batches by the steps committed before them; valid ones by the steps after which they are evaluated."""
    return (batch.split, batch.after_step, batch.step if batch.split == "valid" else 0)


def without_rows(split: Split, *, after_step: int, index: int) -> StepBatch:
    """The batch as a stage between the ends needs it; `index`: of a valid one."""
    rows: dict[int, MicrobatchRows] = {}
    step = after_step if split == "train" else index
    return StepBatch(split=split, step=step, after_step=after_step, trained_tokens=0, microbatches=rows)


def _has(batch: StepBatch, microbatch: int, *, size: int) -> bool:
    rows = batch.microbatches.get(microbatch)
    return rows is not None and len(rows.samples) == size


def _merged(known: StepBatch, new: StepBatch) -> StepBatch:
    if _size(known) != _size(new):
        return new
    rows: dict[int, MicrobatchRows] = {**new.microbatches, **known.microbatches}
    return StepBatch(
        split=known.split, step=known.step, after_step=known.after_step,
        trained_tokens=known.trained_tokens, microbatches=rows, last=known.last,
    )  # fmt: skip


def _size(batch: StepBatch) -> int:
    """Samples in a micro-batch; 0 without one."""
    return next((len(rows.samples) for rows in batch.microbatches.values()), 0)
