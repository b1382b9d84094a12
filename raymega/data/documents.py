"""Files to pieces of documents, span by span, so that many readers share a file and none holds all of it.

    file     |---------- span 0 ----------|---------- span 1 ----------|-- span 2 --|
    txt      ...paragraph\\n|\\nparagraph...     a span owns what begins in it; a border is a paragraph, else a line,
    jsonl    ...line\\n|line...                  else a character; both neighbours find the same one
    parquet  row group 0 | row group 1 | ...

    a txt file is one document; a line of jsonl, or a row of parquet, is one, by the fields that it has:
        {"text": ".."}    {"prompt": "..", "completion": ".."} (the prompt is not trained)    {"input_ids": [..]}

Long texts come in pieces of about PIECE_CHARS; `ends` marks a document's last. Spans and pieces depend on the files
alone, never on how many readers there are.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raymega.data.inputs import InputFile
from raymega.data.text_range import line_number, read_range
from raymega.errors import DataError

SPAN_BYTES = 4 << 20
PIECE_CHARS = 16 << 10
ROWS_PER_READ = 64
IDS_FIELDS = ("input_ids", "ids")

_PARAGRAPH = re.compile(r"\n(?=\n\S)")

Where = Callable[[], str]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a file: bytes [start, stop) of text, or row groups [start, stop) of parquet."""

    file: InputFile
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a document: its text, or ids that someone else made.

    `prompt` comes before and is not trained; `where()` says where it lies, which may cost a read of the file.
    """

    text: str = ""
    prompt: str = ""
    ids: np.ndarray | None = None
    ends: bool = True
    where: Where


def spans_of(files: Sequence[InputFile]) -> tuple[Span, ...]:
    """All parts of all files, in order. Files without a row are left out, with one warning that names them."""
    spans: list[Span] = []
    empty: list[str] = []
    for file in files:
        of_file = _row_groups(file) if file.kind == "parquet" else _byte_ranges(file)
        spans += of_file
        if not of_file:
            empty.append(str(file))
    if empty:
        log.warning("%d of %d input files are empty and left out: %s", len(empty), len(files), ", ".join(empty))
    return tuple(spans)


def pieces_of(span: Span, *, text_field: str, vocab_size: int) -> Iterator[Piece]:
    """The pieces of the documents that begin in `span`.

    Raises:
        DataError: what is there cannot be read as its kind; names file and line, row or byte.
    """
    if span.file.kind == "txt":
        yield from _text_pieces(span)
    elif span.file.kind == "jsonl":
        yield from _json_pieces(span, text_field=text_field)
    else:
        yield from _parquet_pieces(span, text_field=text_field, vocab_size=vocab_size)


def _byte_ranges(file: InputFile) -> list[Span]:
    if file.compressed:  # cannot be entered in the middle
        return [Span(file=file, start=0, stop=file.size_bytes)] if file.size_bytes else []
    return [
        Span(file=file, start=start, stop=min(start + SPAN_BYTES, file.size_bytes))
        for start in range(0, file.size_bytes, SPAN_BYTES)
    ]


def _row_groups(file: InputFile) -> list[Span]:
    with _open_parquet(file) as parquet:
        meta = parquet.metadata
        groups = [i for i in range(meta.num_row_groups) if meta.row_group(i).num_rows]
    return [Span(file=file, start=i, stop=i + 1) for i in groups]


def _open_parquet(file: InputFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file.file_system().open_input_file(file.path))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: InputFile, error: Exception) -> DataError:
    return DataError(f"{file} cannot be read as parquet: {error}. Give a complete, readable file.", file=str(file))


def _text_pieces(span: Span) -> Iterator[Piece]:
    for part in read_range(span.file, start=span.start, stop=span.stop):
        pieces = cut(part.text)
        for i, text in enumerate(pieces):
            yield Piece(text=text, ends=part.is_last and i == len(pieces) - 1, where=lambda: str(span.file))


def _json_pieces(span: Span, *, text_field: str) -> Iterator[Piece]:
    for part in read_range(span.file, start=span.start, stop=span.stop):
        for number, line in enumerate(part.text.split("\n")):
            if line.strip():
                where = partial(_line, span.file, part.begin, number)
                yield from _record_pieces(_parsed(line, where=where), where=where, text_field=text_field)


def _line(file: InputFile, begin: int, line: int) -> str:
    return f"{file} line {line_number(file, begin=begin, line=line)}"


def _parsed(line: str, *, where: Where) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # no JSON, a number of thousands of digits, or nested as deeply
        raise DataError(
            f"{where()} is no JSON that can be read: {error}. Every line of jsonl is one object.", where=where()
        ) from error


def _parquet_pieces(span: Span, *, text_field: str, vocab_size: int) -> Iterator[Piece]:
    with _open_parquet(span.file) as parquet:
        schema = parquet.schema_arrow
        _check_id_columns(schema, file=span.file, vocab_size=vocab_size)
        columns = [name for name in (text_field, "prompt", "completion", *IDS_FIELDS) if name in schema.names]
        row = sum(parquet.metadata.row_group(i).num_rows for i in range(span.start))
        groups = list(range(span.start, span.stop))
        try:
            for batch in parquet.iter_batches(batch_size=ROWS_PER_READ, row_groups=groups, columns=columns):
                for record in batch.to_pylist():
                    where = partial("{} row {}".format, span.file, row)
                    yield from _record_pieces(record, where=where, text_field=text_field)
                    row += 1
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(span.file, error) from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{span.file} is not UTF-8 in rows {row} to {row + ROWS_PER_READ - 1} ({error.reason}). "
                "Write its texts as UTF-8.",
                file=str(span.file),
            ) from error


def _check_id_columns(schema: pa.Schema, *, file: InputFile, vocab_size: int) -> None:
    for name in set(IDS_FIELDS) & set(schema.names):
        kind = schema.field(name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        bits = kind.value_type.bit_width if is_list else 64
        if bits <= 16 and vocab_size > 2**bits:
            raise DataError(
                f"{file}: column {name} has type {kind}; the vocabulary has {vocab_size} ids, and {bits} bits hold "
                f"{2**bits}. Ids above were cut off: make the file again with 32 bits.",
                file=str(file),
                column=name,
            )


def _record_pieces(record: Any, *, where: Where, text_field: str) -> Iterable[Piece]:
    fields: dict[str, Any] = record if isinstance(record, dict) else {}
    ids = next((fields[name] for name in IDS_FIELDS if fields.get(name) is not None), None)
    if isinstance(fields.get(text_field), str):
        texts = cut(_whole_text(fields[text_field], where=where))
        return [Piece(text=text, ends=i == len(texts) - 1, where=where) for i, text in enumerate(texts)]
    if isinstance(fields.get("prompt"), str) and isinstance(fields.get("completion"), str):
        prompt, text = (_whole_text(fields[name], where=where) for name in ("prompt", "completion"))
        return [Piece(prompt=prompt, text=text, where=where)]
    if isinstance(ids, list) and all(isinstance(i, int) for i in ids):
        return [Piece(ids=_int64s(ids, where=where), where=where)]
    raise DataError(
        f"{where()} has fields {', '.join(map(str, fields)) or 'none'}; a document is a string {text_field!r}, strings "
        f"'prompt' and 'completion', or integers {IDS_FIELDS[0]!r}. Name the field that holds its text with "
        "--text-field.",
        where=where(),
    )


def _whole_text(text: str, *, where: Where) -> str:
    """The text, of whole characters: JSON may escape half of a pair, which no encoding holds."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where()} has half a character, {text[error.start]!a}, at character {error.start}: a surrogate without "
            "its other half is no text. Write its texts again as UTF-8, or leave the record out.",
            where=where(),
        ) from error
    return text


def _int64s(ids: list[int], *, where: Where) -> np.ndarray:
    try:
        return np.array(ids, dtype=np.int64)
    except OverflowError as error:
        raise DataError(
            f"{where()} has an id that 64 bits do not hold; no vocabulary is that large. Give ids of --tokenizer, or "
            "name the field that holds its text with --text-field.",
            where=where(),
        ) from error


def cut(text: str) -> list[str]:
    """The pieces of a text: cut between the two newlines before a paragraph, else where PIECE_CHARS end thrice."""
    pieces: list[str] = []
    start = 0
    while len(text) - start > PIECE_CHARS:
        border = _PARAGRAPH.search(text, start + PIECE_CHARS - 1, start + 3 * PIECE_CHARS)
        end = border.end() if border else min(start + 3 * PIECE_CHARS, len(text))
        pieces.append(text[start:end])
        start = end
    if start < len(text):
        pieces.append(text[start:])
    return pieces
