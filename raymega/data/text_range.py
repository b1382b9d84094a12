"""The text that begins in a byte range of a file: ranges that tile a file give its whole text, once.

    nominal    0 ........ 4 MiB ........ 8 MiB ........ end
    borders    0 .........|b(4 MiB) ......|b(8 MiB) ..... end         part i = [b(start), b(stop))

b(n) is a function of the file and n alone: for jsonl the first line at or after n; for txt the first paragraph at or
after n, cut between its two newlines, within SEARCH_BYTES, else the first line there, else the first whole character.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from raymega.data.inputs import InputFile, Kind
from raymega.errors import DataError

READ_BYTES = 4 << 20
SEARCH_BYTES = 1 << 20
_PARAGRAPH = re.compile(rb"\n(?=\n\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """`begin`: where it lies in the file, in bytes of its content; `is_last`: the file ends with it."""

    text: str
    begin: int
    is_last: bool


def read_range(file: InputFile, *, start: int, stop: int) -> Iterator[TextPart]:
    """The text whose border lies in [start, stop), decoded; a compressed file is read whole, part by part.

    Raises:
        DataError: the file cannot be read, or is not UTF-8; names the byte.
    """
    try:
        if file.compressed:
            with file.file_system().open_input_stream(file.path, compression="detect") as stream:
                yield from _stream_parts(stream, file=file)
            return
        with file.file_system().open_input_file(file.path) as source:
            begin = _border(source, start, file=file)
            end = _border(source, stop, file=file)
            data = _read(source, begin, end)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} cannot be read: {error}. Give a complete, readable file.", file=str(file)) from error
    if len(data) < end - begin:
        raise DataError(f"{file} became shorter while it was read. Prepare from files that do not change.")
    if data:
        yield TextPart(text=_decode(data, begin=begin, file=file), begin=begin, is_last=end >= file.size_bytes)


def line_number(file: InputFile, *, begin: int, line: int) -> int:
    """The number, from 1, of line `line` (from 0) behind byte `begin` of a file's content."""
    before = 0
    with file.file_system().open_input_stream(file.path, compression="detect") as stream:
        while begin > 0 and (chunk := stream.read(min(begin, READ_BYTES))):
            before += chunk.count(b"\n")
            begin -= len(chunk)
    return before + line + 1


def _stream_parts(stream: pa.NativeFile, *, file: InputFile) -> Iterator[TextPart]:
    begin, rest = 0, b""
    while chunk := stream.read(READ_BYTES):
        data = rest + chunk
        end = _last_border(data, kind=file.kind)
        if end:
            yield TextPart(text=_decode(data[:end], begin=begin, file=file), begin=begin, is_last=False)
        begin, rest = begin + end, data[end:]
    if rest:
        yield TextPart(text=_decode(rest, begin=begin, file=file), begin=begin, is_last=True)


def _last_border(data: bytes, *, kind: Kind) -> int:
    """Where to cut what has been read so far, so that something is left for the last part; 0: nowhere yet."""
    if kind == "jsonl":
        return data.rfind(b"\n", 0, len(data) - 1) + 1
    paragraph = max((m.end() for m in _PARAGRAPH.finditer(data)), default=0)
    return paragraph or data.rfind(b"\n", 0, len(data) - 1) + 1


def _border(source: pa.NativeFile, nominal: int, *, file: InputFile) -> int:
    if nominal <= 0 or nominal >= file.size_bytes:
        return min(max(nominal, 0), file.size_bytes)
    if file.kind == "jsonl":
        return _next_line(source, nominal, size_bytes=file.size_bytes)
    window = _read(source, nominal - 1, min(nominal + SEARCH_BYTES, file.size_bytes))
    paragraph = _PARAGRAPH.search(window)
    if paragraph:
        return nominal - 1 + paragraph.end()
    line = window.find(b"\n")
    if line >= 0:
        return nominal + line
    inside = next(i for i, byte in enumerate(window[1:5] + b"a") if byte & 0xC0 != 0x80)  # skip continuation bytes
    return min(nominal + inside, file.size_bytes)


def _next_line(source: pa.NativeFile, nominal: int, *, size_bytes: int) -> int:
    at = nominal - 1
    while at < size_bytes:
        window = _read(source, at, min(at + SEARCH_BYTES, size_bytes))
        line = window.find(b"\n")
        if line >= 0:
            return at + line + 1
        at += len(window)
    return size_bytes


def _read(source: pa.NativeFile, begin: int, end: int) -> bytes:
    source.seek(begin)
    return bytes(source.read(end - begin))


def _decode(data: bytes, *, begin: int, file: InputFile) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file} is not UTF-8 at byte {begin + error.start} ({error.reason}). "
            "Convert it, for example with `iconv -t utf-8`.",
            file=str(file),
            byte=begin + error.start,
        ) from error
    return text.removeprefix("\ufeff") if begin == 0 else text
