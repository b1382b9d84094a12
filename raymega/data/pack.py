"""Documents to rows: one stream of ids, cut every `seq_len`; neighbouring rows share one id.

    documents   a b c | d e | f g h i j            . ends a document          seq_len = 4
    stream      a b c . d e . f g h i j .
    rows        a b c . d                          inputs a b c . -> targets b c . d
                        d e . f g                  inputs d e . f -> targets e . f g
                                g h i j .
    The last row is filled up with ends of documents, and its mask is False from there on.

Every id but the very first is the target of exactly one row, so no token is lost or trained twice (as in Megatron-LM's
GPTDataset). A mask says which targets count, by where they stand, never by their value: an end of a document is a
target like any other. Prompts are in the stream but not trained; a row that would train nothing is left out.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from raymega.errors import DataError

Ids = NDArray[Any]  # int32, or uint16 where the vocabulary fits
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedRows:
    """Rows of token ids and which of their targets are trained."""

    ids: Ids  # [N, seq_len + 1]
    mask: Mask  # [N, seq_len], of the target ids[:, 1:]

    @property
    def num_trained(self) -> NDArray[np.int64]:
        """[N]: trained targets of each row."""
        return np.count_nonzero(self.mask, axis=1)


@dataclass(slots=True, kw_only=True)
class Packer:
    """The stream of one split. Add documents in order, take the rows that are complete, finish once."""

    seq_len: int
    eod_id: int
    dtype: str = "int32"
    _ids: list[Ids] = field(default_factory=list)
    _trained: list[Mask] = field(default_factory=list)

    def add(self, ids: Ids, *, num_untrained: int = 0) -> None:
        """Continue the current document; its first `num_untrained` ids here are a prompt."""
        trained = np.ones(len(ids), dtype=np.bool_)
        trained[:num_untrained] = False
        self._ids.append(ids.astype(self.dtype, copy=False))
        self._trained.append(trained)

    def end_document(self) -> None:
        self.add(np.array([self.eod_id], dtype=self.dtype))

    def take(self) -> PackedRows:
        """The rows that are complete now."""
        ids, trained = self._stream()
        num_rows = max(0, (len(ids) - 1) // self.seq_len)
        used = num_rows * self.seq_len
        self._ids, self._trained = [ids[used:]], [trained[used:]]
        return self._rows(ids[: used + 1], trained[: used + 1])

    def finish(self) -> PackedRows:
        """All rows that are left; the last one is filled up and masked. Raises: DataError if memory cannot hold it."""
        ids, trained = self._stream()
        padding = -(len(ids) - 1) % self.seq_len if len(ids) > 1 else 0
        self._ids, self._trained = [], []
        try:
            return self._rows(
                np.concatenate([ids, np.full(padding, self.eod_id, dtype=self.dtype)]),
                np.concatenate([trained, np.zeros(padding, dtype=np.bool_)]),
            )
        except MemoryError as error:
            raise DataError(
                f"a row of {self.seq_len:,} positions, of which the text fills {len(ids):,}, does not fit in this "
                "machine's memory. Use a shorter seq_len, or more text."
            ) from error

    def _stream(self) -> tuple[Ids, Mask]:
        return (
            np.concatenate([np.empty(0, dtype=self.dtype), *self._ids]),
            np.concatenate([np.empty(0, dtype=np.bool_), *self._trained]),
        )

    def _rows(self, ids: Ids, trained: Mask) -> PackedRows:
        """Cut a stream of 1 + N * seq_len ids (or none, or one) into N rows, less those that train nothing."""
        num_rows = max(0, len(ids) - 1) // self.seq_len
        if not num_rows:
            return PackedRows(
                ids=np.empty((0, self.seq_len + 1), dtype=self.dtype), mask=np.empty((0, self.seq_len), dtype=np.bool_)
            )
        rows = sliding_window_view(ids, self.seq_len + 1)[:: self.seq_len]  # views: neighbours share an id
        mask = trained[1:].reshape(num_rows, self.seq_len)
        kept = mask.any(axis=1)
        return PackedRows(ids=rows if kept.all() else rows[kept], mask=mask if kept.all() else mask[kept])


@dataclass(slots=True, kw_only=True)
class SplitChooser:
    """Sends pieces of text to validation so that its share of the ids stays closest to `valid_fraction`."""

    valid_fraction: float
    num_ids: int = 0
    num_valid_ids: int = 0

    def choose(self, num_ids: int) -> str:
        """The split of the next piece: decided by the sizes of the pieces up to this one, and nothing else."""
        self.num_ids += num_ids
        if self.valid_fraction * self.num_ids < self.num_valid_ids + num_ids / 2:
            return "train"
        self.num_valid_ids += num_ids
        return "valid"
