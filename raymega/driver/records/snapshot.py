"""Where a replay may begin: the state after some turn of a journal, so that a long run is taken over soon.

    journal/000001.jsonl       turn 1 .. turn 2000, turn 2001, .. turn 2512, ..        all there is to know
            000001.snapshot    after turn 2000: its place in the journal, the state, what the run adds up to;
                               written with turn 2512, so that some turns are always told again

Only the newest is kept. It is no record: it is read by the program that wrote it, and where it is missing, torn or of
another program the replay begins at the beginning.
"""

import hashlib
import os
import pickle
from dataclasses import dataclass
from pathlib import Path

from raymega.control.loop import Turn
from raymega.control.states import State
from raymega.driver.records.progress import Progress
from raymega.driver.records.tenure import Tenure

EVERY_TURNS = 2000  # a fifth of a second of replay
TOLD_AGAIN = 512  # turns, for sinks and clients that have missed the last of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """After turn `seq`, whose line in the journal ends at byte `offset`."""

    seq: int
    t: float
    offset: int
    state: State
    progress: Progress


class Snapshots:
    """A watcher of the loop, to be told after the journal: writes a snapshot every so many turns."""

    def __init__(self, tenure: Tenure, *, progress: Progress) -> None:
        self._tenure, self._progress = tenure, progress
        self._taken: Snapshot | None = None

    def saw(self, turn: Turn) -> None:
        self._progress = self._progress.after(turn)
        if turn.seq % EVERY_TURNS == 0:
            offset, state = self._tenure.file.stat().st_size, turn.decision.state
            self._taken = Snapshot(seq=turn.seq, t=turn.t, offset=offset, state=state, progress=self._progress)
        if self._taken is not None and turn.seq == self._taken.seq + TOLD_AGAIN:
            _write(self._tenure.file, self._taken)


def read_snapshot(journal: Path) -> Snapshot | None:
    """The snapshot beside `journal`; None if there is none that is whole."""
    file = journal.with_suffix(".snapshot")
    content = file.read_bytes() if file.exists() else b""
    digest, body = content[:32], content[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        found = pickle.loads(body)
    except (pickle.UnpicklingError, AttributeError, ImportError, TypeError):  # of another version of this program
        return None
    return found if isinstance(found, Snapshot) else None


def _write(journal: Path, taken: Snapshot) -> None:
    """Not waited for until it is on the disk: a torn one is none."""
    body = pickle.dumps(taken)
    draft = journal.with_suffix(".draft")
    draft.write_bytes(hashlib.sha256(body).digest() + body)
    os.replace(draft, journal.with_suffix(".snapshot"))
