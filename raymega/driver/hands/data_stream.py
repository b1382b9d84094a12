"""Batches of a run, in order, from any step on: Ray Data fetches ahead, and holds no more than a few blocks.

    steps      first ............................................. stop
    windows    |---- at most WINDOW_BLOCKS blocks ----|---- ... ----|        one Ray Data pipeline after another
    blocks     | 0..255 | 256..511 | ...                              numbers of steps; a task fetches a block
                   |        |        in order (preserve_order), at most TASKS at a time
                   v        v
    here       256 HostBatches, 256 HostBatches, ...                  backpressure: STORE_BYTES in the object store

The pipeline carries numbers of steps, never data, so starting at step k costs what starting at 0 costs, and a fetch
that is lost with its process is simply done again. Its tasks ask for no CPU, since the workers hold them all, and run
on the stream's own node, which is the one that has to see the files. Evaluations are read in place.
"""

from collections.abc import Generator, Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import ray
import ray.data

from raymega.data.fetch import HostBatch, TrainFetch, ValidFetch, batches_of
from raymega.data.open_data import OpenData
from raymega.driver.cluster.ray_data import quiet, tables_of
from raymega.errors import DataError

WINDOW_BLOCKS = 64
LARGEST_BLOCK_STEPS = 256
BLOCK_BYTES = 4 << 20
STORE_BYTES = 32 << 20
TASKS = 2


class BatchStream:
    """Batches, each once, in order. Iterate in any one thread; close when abandoned."""

    def __init__(self, batches: Generator[HostBatch, None, None]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[HostBatch]:
        return self._batches

    def __next__(self) -> HostBatch:
        return next(self._batches)

    def close(self) -> None:
        """End the pipeline and its threads; to be called by the thread that iterates."""
        self._batches.close()


def train_stream(data: OpenData, *, batch_size: int, start_step: int, stop_step: int) -> BatchStream:
    """The training steps [start_step, stop_step), counted from 0, over as many epochs as that takes."""
    return BatchStream(_prefetched(data.train_fetch(batch_size=batch_size), first=start_step, stop=stop_step))


def valid_stream(data: OpenData, *, batch_size: int, num_samples: int | None = None) -> BatchStream:
    """One evaluation: all validation rows, or the first `num_samples`, each once; the last batch is filled up.

    Read in place, batch by batch: a pipeline of its own would start processes for each evaluation.
    """
    return BatchStream(_read_here(data.valid_fetch(batch_size=batch_size, num_samples=num_samples)))


def _read_here(fetch: ValidFetch) -> Generator[HostBatch, None, None]:
    for batch in range(fetch.order.num_batches):
        yield from batches_of(fetch.table(np.array([batch])), batch_size=fetch.batch_size)


def _prefetched(fetch: TrainFetch, *, first: int, stop: int) -> Generator[HostBatch, None, None]:
    per_block = _steps_per_block(fetch)
    step = first
    while step < stop:
        window = range(step, min(stop, step + WINDOW_BLOCKS * per_block))
        with closing(_tables(fetch, window=window, per_block=per_block)) as tables:
            for table in tables:
                for batch in batches_of(table, batch_size=fetch.batch_size):
                    if batch.step != step:
                        raise DataError(f"step {step} got no batch; the data pipeline gave step {batch.step} instead.")
                    yield batch
                    step += 1
        if step != window.stop:
            raise DataError(f"step {step} got no batch: the data pipeline ended before step {window.stop}.")


def _steps_per_block(fetch: TrainFetch) -> int:
    step_bytes = 4 * fetch.batch_size * (fetch.seq_len + 1)
    return max(1, min(LARGEST_BLOCK_STEPS, BLOCK_BYTES // step_bytes))


def _tables(fetch: TrainFetch, *, window: range, per_block: int) -> Generator[pa.Table, None, None]:
    """The tables of one window, in order."""
    quiet()
    blocks = [
        {"first": first, "stop": min(window.stop, first + per_block)}
        for first in range(window.start, window.stop, per_block)
    ]
    steps = ray.data.from_items(blocks, override_num_blocks=len(blocks))
    context = steps.context
    context.execution_options.preserve_order = True
    context.execution_options.resource_limits = ray.data.ExecutionResources(object_store_memory=STORE_BYTES)
    rows = steps.map_batches(
        fetch.block,
        batch_size=1,
        batch_format="numpy",
        num_cpus=0,
        compute=ray.data.TaskPoolStrategy(size=min(TASKS, len(blocks))),
        label_selector={"ray.io/node-id": ray.get_runtime_context().get_node_id()},
    )
    return tables_of(rows)
