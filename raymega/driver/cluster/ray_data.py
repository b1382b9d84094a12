"""Ray Data, made quiet and honest: no bars, no start-up lines, and its readers' errors as they were raised."""

import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pyarrow as pa
import ray
import ray.data
from ray.data import DataContext

from raymega.errors import RaymegaError


def tables_of(dataset: ray.data.Dataset) -> Generator[pa.Table, None, None]:
    """The blocks of a dataset as tables, in its order; closing it ends the pipeline and its threads.

    Not `iter_batches`: closed early, that leaves its prefetcher's thread, and the blocks it holds, behind (Ray 2.60).
    Dropping the last reference to the iterator used here shuts the executor down.
    """
    with original_error():
        for bundle in dataset.iter_internal_ref_bundles():
            for entry in bundle.blocks:
                yield ray.get(entry.ref)


def quiet() -> None:
    """Let Ray Data of this process write nothing of its own, and hand on what our functions raise."""
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.enable_operator_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True
    for name in ("ray.data", "ray.data._internal.execution.streaming_executor", "ray.data.exceptions"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def original_error() -> Iterator[None]:
    """Raise what a function of ours raised inside a task, in place of Ray's report of it."""
    try:
        yield
    except ray.exceptions.RayError as error:
        ours = _ours(error)
        if ours is None:
            raise
        raise ours from None


def _ours(error: BaseException) -> RaymegaError | None:
    while isinstance(error, ray.exceptions.RayTaskError):
        error = error.cause
    return error if isinstance(error, RaymegaError) else None
