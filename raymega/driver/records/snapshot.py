"""Where a replay may begin: the state after some turn of a journal, so that a long run is taken over, and shown, soon.

    journal/000001.jsonl       turn 1 .. turn 2000, turn 2001, .. turn 2512, ..        all there is to know
            000001.snapshot    after turn 2000: its place in the journal, the state, what the launch adds up to;
                               written with turn 2512, so that some turns are always told again

    digest of the rest | {"raymega": "0.1.0", "meaning": 1, "fields": {"raymega.mesh.Mesh": ["dp", ..], ..}} | pickle

Only the newest is kept. It is no record: it is read by a program whose values have the same fields and meaning as those
of the one that wrote it. Where it is missing, torn or of another program the replay begins at the beginning.
"""

import hashlib
import io
import json
import os
import pickle
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from raymega import __version__
from raymega.control.loop import Turn
from raymega.control.states import State
from raymega.driver.records.history import History
from raymega.driver.records.tenure import Tenure

EVERY_TURNS = 2000  # a fifth of a second of replay
TOLD_AGAIN = 512  # turns, for sinks and clients that have missed the last of them
MEANING = 1  # to be raised where a field of a state, or of what a run adds up to, means something else than before
DIGEST_BYTES = 32
Fields = dict[str, list[str]]
"""Of each class of values, by its full name, the names of its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """After turn `seq`, whose line in the journal ends at byte `offset`. `history`: of the launch up to there."""

    seq: int
    t: float
    offset: int
    state: State
    history: History


class Snapshots:
    """A watcher of the loop, to be told after the journal: writes a snapshot every so many turns.

    Args:
        history: of the launch before the first turn that it is told.
    """

    def __init__(self, tenure: Tenure, *, history: History) -> None:
        self._tenure, self._history = tenure, history
        self._taken: Snapshot | None = None

    def saw(self, turn: Turn) -> None:
        self._history = self._history.after(turn)
        if turn.seq % EVERY_TURNS == 0:
            offset, state = self._tenure.file.stat().st_size, turn.decision.state
            self._taken = Snapshot(seq=turn.seq, t=turn.t, offset=offset, state=state, history=self._history)
        if self._taken is not None and turn.seq == self._taken.seq + TOLD_AGAIN:
            _write(self._tenure.file, self._taken)


def read_snapshot(journal: Path) -> Snapshot | None:
    """The snapshot beside `journal`; None if there is none that is whole, of this program, and of this journal."""
    try:
        content = journal.with_suffix(".snapshot").read_bytes()
    except OSError:
        return None
    digest, rest = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(rest).digest() != digest:
        return None
    head, _, body = rest.partition(b"\n")
    try:
        found = _Reader(io.BytesIO(body), told=_fields_told(head)).load()
    except (pickle.UnpicklingError, AttributeError, ImportError, TypeError, LookupError, ValueError, EOFError):
        return None  # of another program
    return found if isinstance(found, Snapshot) and _has_line_until(journal, found.offset) else None


def _has_line_until(journal: Path, offset: int) -> bool:
    """Whether a line of the journal ends there: not if it was cut, or is another one."""
    with journal.open("rb") as lines:
        lines.seek(offset - 1)
        return lines.read(1) == b"\n"


def _write(journal: Path, taken: Snapshot) -> None:
    """Not waited for until it is on the disk: a torn one is none."""
    out = io.BytesIO()
    writer = _Writer(out)
    writer.dump(taken)
    head = {"raymega": __version__, "meaning": MEANING, "fields": writer.seen}
    rest = json.dumps(head).encode() + b"\n" + out.getvalue()
    draft = journal.with_suffix(".draft")
    draft.write_bytes(hashlib.sha256(rest).digest() + rest)
    os.replace(draft, journal.with_suffix(".snapshot"))


def _fields_told(head: bytes) -> Fields:
    """Of the classes in a snapshot. Raises: UnpicklingError for that of another version."""
    told = json.loads(head)
    if not isinstance(told, dict) or (told["raymega"], told["meaning"]) != (__version__, MEANING):
        raise pickle.UnpicklingError("it is of another version")
    found: Fields = told["fields"]
    return found


class _Writer(pickle.Pickler):
    """Remembers the fields of whatever it has written."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out)
        self.seen: Fields = {}

    def reducer_override(self, value: Any) -> Any:  # Any: whatever a state is made of
        if is_dataclass(value):
            kind = value if isinstance(value, type) else type(value)
            self.seen.setdefault(f"{kind.__module__}.{kind.__qualname__}", [field.name for field in fields(kind)])
        return NotImplemented


class _Reader(pickle.Unpickler):
    """Refuses classes that have other fields by now: their values would lack some."""

    def __init__(self, body: io.BytesIO, *, told: Fields) -> None:
        super().__init__(body)
        self._told = told

    def find_class(self, module: str, name: str) -> Any:  # Any: whatever a state is made of
        found = super().find_class(module, name)
        if is_dataclass(found) and self._told.get(f"{module}.{name}") != [field.name for field in fields(found)]:
            raise pickle.UnpicklingError(f"{module}.{name} has other fields")
        return found
