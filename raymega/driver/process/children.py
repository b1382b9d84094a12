"""Processes that live as long as a block does, and no longer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

END_WAIT_S = 5.0


@contextmanager
def running(processes: Sequence[BaseProcess]) -> Iterator[None]:
    """Start `processes`; at the end of the block each has `END_WAIT_S` to end by itself, and none is left."""
    try:
        for process in processes:
            process.start()
        yield
    finally:
        for process in processes:
            process.join(END_WAIT_S)
            process.kill()
            process.join()
