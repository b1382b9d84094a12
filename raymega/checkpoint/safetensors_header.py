"""The head of a safetensors file, written and read by hand, so that pieces can be read by range from any storage.

    8 bytes   N, little endian
    N bytes   {"__metadata__": {...}, "key": {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}, ...}
    data      offsets count from here; entries follow each other without holes

Source: https://github.com/huggingface/safetensors, "Format".
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from raymega.checkpoint.store import Source
from raymega.errors import StateError
from raymega.layout.checkpoint_manifest import DTYPE_BYTES

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor to be put into a file."""

    key: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tensor lies in a file; `offset` in bytes from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a file says of itself."""

    metadata: dict[str, str]
    places: dict[str, Place]


def header_bytes(entries: Iterable[Entry], *, metadata: Mapping[str, str]) -> bytes:
    """The head of a file whose data are `entries`, in this order; the data start at a multiple of 8."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for entry in entries:
        start, end = end, end + entry.size_bytes
        table[entry.key] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [start, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_header(source: Source) -> Header:
    """Read a file's head. Raises: StateError if it is none."""
    size = int.from_bytes(_read(source, offset=0, size=8), "little")
    if size > _MAX_HEADER_BYTES:
        raise StateError(f"its header claims {size} bytes; it is no safetensors file")
    try:
        table = json.loads(_read(source, offset=8, size=size))
        metadata = table.pop("__metadata__", {})
        return Header(metadata=metadata, places={key: _place(facts, 8 + size) for key, facts in table.items()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StateError(f"its header cannot be read: {error}") from error


def _place(facts: dict[str, Any], data_start: int) -> Place:
    first, end = facts["data_offsets"]
    return Place(dtype=facts["dtype"], shape=tuple(facts["shape"]), offset=data_start + first, size_bytes=end - first)


def _read(source: Source, *, offset: int, size: int) -> bytes:
    buffer = bytearray(size)
    if source.read_into(memoryview(buffer), offset=offset) < size:
        raise StateError("it ends within its header")
    return bytes(buffer)
