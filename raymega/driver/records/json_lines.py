"""Files of one JSON object a line, only ever added to: a crash can tear the last line and nothing else."""

import errno
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from raymega.driver.records.line_shapes import ANYTHING, Line, Shape
from raymega.driver.records.run_dir import cannot_write, write_whole
from raymega.errors import StateError

NEWLINE, BLOCK_BYTES = b"\n", 2**16


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line, by the byte at which it begins and the one after it; prints as `FILE:NUMBER`."""

    file: Path
    begin: int
    end: int

    def __str__(self) -> str:
        with self.file.open("rb") as lines:
            return f"{self.file}:{lines.read(self.begin).count(NEWLINE) + 1}"


def read_lines(file: Path, *, offset: int = 0, shape: Shape = ANYTHING) -> Iterator[Line]:
    """The lines of `file` from byte `offset` on, without a torn last one; each has what `shape` wants.

    Raises: StateError naming one that is broken in the middle, or lacks something.
    """
    return (line for _, line in placed_lines(file, offset=offset, shape=shape))


def placed_lines(file: Path, *, offset: int = 0, shape: Shape = ANYTHING) -> Iterator[tuple[Place, Line]]:
    """The same, each with where it stands."""
    try:
        with file.open("rb") as lines:
            lines.seek(offset)
            for text in lines:
                if not text.endswith(NEWLINE):
                    return
                place = Place(file=file, begin=offset, end=offset + len(text))
                offset = place.end
                yield place, _read(text, place=place, shape=shape)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StateError(f"{file} cannot be read: {error.strerror}. Give access to it") from error


def newest_line(file: Path, *, shape: Shape = ANYTHING) -> Line | None:
    """The last whole line; None: there is none."""
    return next(newest_lines(file, shape=shape), None)


def newest_lines(file: Path, *, shape: Shape = ANYTHING, having: str = "") -> Iterator[Line]:
    """The whole lines of `file`, the newest first, without reading what is before those that are taken.

    Args:
        having: only lines in which this word stands in quotes.
    Raises: StateError naming a line that is broken, or lacks something.
    """
    word = json.dumps(having).encode() if having else NEWLINE
    try:
        with file.open("rb") as lines:
            for begin, text in _newest_texts(lines, word=word):
                yield _read(text, place=Place(file=file, begin=begin, end=begin + len(text)), shape=shape)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StateError(f"{file} cannot be read: {error.strerror}. Give access to it") from error


def _newest_texts(lines: BinaryIO, *, word: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole lines in which `word` stands, the newest first, each with the byte at which it begins.

    They are read a block at a time: a process that maps a file is ended by the system when that shrinks meanwhile.
    """
    begin, head = lines.seek(0, os.SEEK_END), b""  # head: the end of a line that begins before it
    while begin > 0:
        begin, wanted = max(0, begin - BLOCK_BYTES), min(BLOCK_BYTES, begin)
        lines.seek(begin)
        block = lines.read(wanted)
        if len(block) < wanted:
            return  # it has shrunk
        text = block + head
        first = text.find(NEWLINE) + 1 or len(text) if begin else 0
        head, whole = text[:first], text[first : text.rfind(NEWLINE) + 1]  # what is behind the last is torn
        if word in whole:
            end = begin + first + len(whole)
            for part in reversed(whole.split(NEWLINE)[:-1]):
                end -= len(part) + 1
                if word == NEWLINE or word in part:
                    yield end, part + NEWLINE


def _read(text: bytes, *, place: Place, shape: Shape) -> Line:
    """What one line says. Raises: StateError for anything but an object that has what `shape` wants."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, or no text at all
        raise StateError(f"{place} is not JSON: {error}. Put that line back as it was, or take it out") from error
    if not isinstance(line, dict):
        raise StateError(f"{place} is no JSON object, as each line is. Put it back as it was, or take it out")
    fault = shape.fault_in(line)
    if fault:
        raise StateError(
            f"{place} {fault}: it is damaged, or of another version of raymega. Put that line back as it was, or take "
            "it out"
        )
    return line


def mend(file: Path) -> None:
    """Cut off a torn last line, so that what is added next stands on a line of its own."""
    if file.exists():
        text = file.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.truncate(file, whole)


def cut_lines(file: Path, *, key: str, last: int, shape: Shape) -> None:
    """Keep the lines whose `key` is at most `last`, all or nothing."""
    kept = (line for line in read_lines(file, shape=shape) if line[key] <= last)
    write_whole(file, "".join(json.dumps(line) + "\n" for line in kept))


def finite(value: Any) -> Any:
    """`value` with null for every number that is not finite, which JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
