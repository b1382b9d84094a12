"""Spans of files to tables of ids: what readers send to the one who packs, in pieces, in order.

column     type         piece
ids        list<T>      ids of the piece, prompt first; T is uint16 or int32 as in the shards
untrained  int32        so many ids at the start are a prompt
ends       bool         the document ends here
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from raymega.data.documents import Piece, Span, pieces_of
from raymega.data.token_file import dtype_for
from raymega.data.tokenizer import Ids, Tokenizer
from raymega.errors import DataError

TABLE_CHARS = 1 << 20
"""A table holds pieces of about so much text: small enough to stream, large enough to be cheap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Reads and encodes spans; a plain value that any process can use."""

    tokenizer: Tokenizer
    text_field: str = "text"

    def tables(self, span: Span) -> Iterator[pa.Table]:
        """The tables of one span; none of them is empty."""
        pieces = pieces_of(span, text_field=self.text_field, vocab_size=self.tokenizer.vocab_size)
        for some in _batches(pieces):
            yield self._table(some)

    def _table(self, pieces: list[Piece]) -> pa.Table:
        texts = self.tokenizer.encode([text for piece in pieces for text in (piece.prompt, piece.text)])
        prompts, bodies = texts[::2], texts[1::2]
        ids = [
            np.concatenate([prompt, body]) if piece.ids is None else self._given(piece)
            for piece, prompt, body in zip(pieces, prompts, bodies, strict=True)
        ]
        flat: Any = np.concatenate(ids).astype(dtype_for(self.tokenizer.vocab_size))
        offsets: Any = np.cumsum([0, *map(len, ids)], dtype=np.int32)  # Any: pyarrow's stubs know no numpy
        return pa.table(
            {
                "ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat)),
                "untrained": pa.array([len(prompt) for prompt in prompts], pa.int32()),
                "ends": pa.array([piece.ends for piece in pieces], pa.bool_()),
            }
        )

    def _given(self, piece: Piece) -> Ids:
        """Ids that came as such, if they are ids of this tokenizer."""
        assert piece.ids is not None
        wrong = piece.ids[(piece.ids < 0) | (piece.ids >= self.tokenizer.vocab_size)]
        if wrong.size:
            raise DataError(
                f"{piece.where()} has id {wrong[0]}; the vocabulary of {self.tokenizer.name} has "
                f"{self.tokenizer.vocab_size} ids, 0 to {self.tokenizer.vocab_size - 1}. Name the tokenizer that made "
                "the ids with --tokenizer.",
                where=piece.where(),
            )
        return piece.ids.astype(np.int32)


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    some: list[Piece] = []
    num_chars = 0
    for piece in pieces:
        some.append(piece)
        num_chars += len(piece.prompt) + len(piece.text) + (0 if piece.ids is None else len(piece.ids))
        if num_chars >= TABLE_CHARS:
            yield some
            some, num_chars = [], 0
    if some:
        yield some
