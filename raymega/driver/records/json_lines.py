"""Files of one JSON object a line, only ever added to: a crash can tear the last line and nothing else."""

import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raymega.driver.records.run_dir import cannot_write, write_whole
from raymega.errors import StateError

Line = dict[str, Any]  # Any: JSON


class LineWriter:
    """Adds lines to `file`; each is handed to the system at once, and is on the disk after `sync`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            mend(file)
            self._out = file.open("ab", buffering=0)
        except OSError as error:
            raise cannot_write(file, error) from error

    def add(self, line: Line) -> None:
        """Add one line, whole or not at all. Raises: StateError, with the way out."""
        text = (json.dumps(finite(line)) + "\n").encode()
        end = self._out.tell()
        try:
            if self._out.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.truncate(self.file, end)
            raise cannot_write(self.file, error) from error

    def sync(self) -> None:
        try:
            os.fsync(self._out.fileno())
        except OSError as error:
            raise cannot_write(self.file, error) from error

    def close(self) -> None:
        self._out.close()


def read_lines(file: Path, *, offset: int = 0) -> Iterator[Line]:
    """The lines of `file` from byte `offset` on, without a torn last one.

    Raises: StateError for one that is broken in the middle.
    """
    if not file.exists():
        return
    with file.open("rb") as lines:
        lines.seek(offset)
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            yield _object_of(line, where=f"{file}:{number}")


def _object_of(text: bytes, *, where: str) -> Line:
    """What one line says. Raises: StateError for anything but an object."""
    try:
        line = json.loads(text)
    except ValueError as error:  # no JSON, or no text at all
        raise StateError(f"{where} is not JSON: {error}. Put that line back as it was, or take it out") from error
    if not isinstance(line, dict):
        raise StateError(f"{where} is no JSON object, as each line is. Put it back as it was, or take it out")
    return line


def mend(file: Path) -> None:
    """Cut off a torn last line, so that what is added next stands on a line of its own."""
    if file.exists():
        text = file.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.truncate(file, whole)


def cut_lines(file: Path, *, key: str, last: int) -> None:
    """Keep the lines whose `key` is at most `last`, all or nothing."""
    write_whole(file, "".join(json.dumps(line) + "\n" for line in read_lines(file) if line[key] <= last))


def finite(value: Any) -> Any:
    """`value` with null for every number that is not finite, which JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
