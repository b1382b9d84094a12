"""Saving: a copy at the step's boundary, then files in the background. Training waits for the copy only.

    step k | copy | step k+1      | step k+2      |        the worker's thread
           |      '--> write, checksum, fsync ... report   one background thread; never a second copy in flight

The copy lies in host memory that is taken once and used for every save. What is written is nothing until the
controller publishes the manifest; a save that fails is reported, and the checkpoint before it stays the newest.
Source: the two phases of torch.distributed.checkpoint's async_save and CheckFreq (Mohan et al., FAST 2021).
"""

import errno
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from raymega.checkpoint.shard_writer import Commit, write_shards
from raymega.checkpoint.snapshot import Snapshot
from raymega.checkpoint.state_item import StateItem
from raymega.checkpoint.store import Store
from raymega.layout.checkpoint_layout import directory_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWritten:
    """This worker's part lies on storage; `files` are `ShardFile.to_json`, what the manifest needs of it."""

    commit: Commit
    files: tuple[dict[str, Any], ...]
    stall_s: float
    write_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """This worker's part could not be written; the reason names worker, place and cause."""

    commit: Commit
    reason: str


SaveResult = FilesWritten | WriteFailed


class Saver:
    """One worker's saves.

    Args:
        worker: its id, for file names and reasons.
        store: the directory of the run's checkpoints.
        report: called with each result, from the background thread.
    """

    def __init__(self, *, worker: str, store: Store, report: Callable[[SaveResult], None]) -> None:
        self._worker = worker
        self._store = store
        self._report = report
        self._snapshot = Snapshot()
        self._idle = threading.Event()
        self._idle.set()

    def reserve(self, items: Sequence[StateItem]) -> None:
        """Take the memory of the copies ahead of the first save."""
        self._snapshot.reserve(items)

    def start(self, items: Sequence[StateItem], *, commit: Commit, wait_s: float) -> float:
        """Copy `items` and begin to write them; seconds the caller was held up.

        While the save before is still being written, wait for it up to `wait_s`; after that this one is not made,
        and reported as failed.
        """
        began = time.perf_counter()
        if not self.wait(wait_s):
            reason = f"{self._worker} did not save step {commit.step}: its save before is still being written"
            self._report(WriteFailed(commit=commit, reason=reason))
            return time.perf_counter() - began
        self._snapshot.take(items)
        stall_s = time.perf_counter() - began
        self._idle.clear()
        threading.Thread(target=self._write, args=(commit, stall_s), name="checkpoint", daemon=True).start()
        return stall_s

    def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is being written; False if the time is over before."""
        return self._idle.wait(timeout_s)

    def _write(self, commit: Commit, stall_s: float) -> None:
        began = time.perf_counter()
        directory = self._store.sub(directory_of(commit.step))
        fault = f"{self._worker}'s writer ended by a fault of raymega; its log has the traceback"
        result: SaveResult = WriteFailed(commit=commit, reason=fault)
        try:
            files = write_shards(self._snapshot.items, store=directory, worker=self._worker, commit=commit)
            written = tuple(file.to_json() for file in files)
            result = FilesWritten(commit=commit, files=written, stall_s=stall_s, write_s=time.perf_counter() - began)
        except OSError as error:
            result = WriteFailed(commit=commit, reason=_reason(error, self._worker, directory))
        finally:
            try:
                self._report(result)
            finally:
                self._idle.set()


def _reason(error: OSError, worker: str, store: Store) -> str:
    code = f"{errno.errorcode.get(error.errno, error.errno)} " if error.errno else ""
    cause = error.strerror or str(error)
    return f"{worker} could not write to {store.place}: {code}{cause}"
