"""Rows of token ids on disk: Arrow IPC files, one record batch each, read in place through memory maps.

column    type                               row
ids       fixed_size_list<T>[seq_len + 1]    inputs are ids[:-1], targets ids[1:]; T is uint16 up to 65536 ids
trained   int32                              trained targets; without a mask, they are the first ones
mask      fixed_size_binary[seq_len / 8]     only in shards with prompts: bit j says whether target j is trained

global row   0 .. 9999 | 10000 .. 19999 | ...        shard = the last that starts at or before it
"""

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raymega.data.manifest import Manifest, ShardInfo, file_digest
from raymega.data.pack import PackedRows
from raymega.errors import DataError

Int64s = NDArray[np.int64]


def dtype_for(vocab_size: int) -> str:
    """The smallest type of numpy that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= 2**16 else "int32"


def write_shard(path: Path, rows: PackedRows, *, dtype: str) -> ShardInfo:
    """Write `rows` as one file, flushed to the disk; describe it for the manifest."""
    trained = rows.num_trained
    ids = pa.array(rows.ids.astype(dtype, copy=False).reshape(-1))
    columns = {
        "ids": pa.FixedSizeListArray.from_arrays(ids, rows.ids.shape[1]),
        "trained": pa.array(trained.astype(np.int32)),
    }
    partly = np.flatnonzero(trained < rows.mask.shape[1])
    if not np.array_equal(rows.mask[partly], prefix_mask(trained[partly], seq_len=rows.mask.shape[1])):
        columns["mask"] = pack_mask(rows.mask)
    batch = pa.record_batch(columns)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return ShardInfo(
        file=path.name,
        rows=batch.num_rows,
        trained_tokens=int(trained.sum()),
        size_bytes=path.stat().st_size,
        min_id=int(rows.ids.min()),
        max_id=int(rows.ids.max()),
        xxh3=file_digest(path),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSplit:
    """The rows of one split of one or more prepared directories; a plain value that any process can read rows of."""

    seq_len: int
    vocab_size: int
    paths: tuple[str, ...]
    rows: tuple[int, ...]  # of each path

    @classmethod
    def of(cls, manifest: Manifest, *, directory: str, split: str) -> "TokenSplit":
        shards = manifest.splits[split].shards
        return cls(
            seq_len=manifest.seq_len,
            vocab_size=manifest.tokenizer.vocab_size,
            paths=tuple(str(Path(directory).absolute() / shard.file) for shard in shards),
            rows=tuple(shard.rows for shard in shards),
        )

    @property
    def num_rows(self) -> int:
        return sum(self.rows)

    def gather(self, rows: Int64s) -> PackedRows:
        """The rows with these numbers, in this order, copied out of the shards that hold them.

        Raises:
            DataError: a shard cannot be opened, or a row has an id outside the vocabulary.
        """
        starts = np.fromiter(accumulate(self.rows, initial=0), dtype=np.int64)
        shard_of_row = np.searchsorted(starts, rows, side="right") - 1  # [B]
        ids = np.empty((len(rows), self.seq_len + 1), dtype=np.int32)
        mask = np.empty((len(rows), self.seq_len), dtype=np.bool_)
        for number in np.unique(shard_of_row):
            chosen = np.flatnonzero(shard_of_row == number)
            local = rows[chosen] - starts[number]
            shard = open_shard(Path(self.paths[number]), seq_len=self.seq_len)
            ids[chosen] = shard.ids[local]
            refuse_foreign_ids(ids[chosen], path=self.paths[number], rows=local, vocab_size=self.vocab_size)
            mask[chosen] = shard.mask_of(local)
        return PackedRows(ids=ids, mask=mask)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Views into one memory-mapped file; the map lives as long as they do."""

    ids: NDArray[Any]  # [N, seq_len + 1] uint16 or int32
    trained: NDArray[np.int32]  # [N]
    mask_bits: NDArray[np.uint8] | None  # [N, ceil(seq_len / 8)]

    def mask_of(self, rows: Int64s) -> NDArray[np.bool_]:
        """[len(rows), seq_len]: which targets of these rows are trained."""
        seq_len = self.ids.shape[1] - 1
        if self.mask_bits is None:
            return prefix_mask(self.trained[rows], seq_len=seq_len)
        return unpack_mask(self.mask_bits[rows], seq_len=seq_len)


def open_shard(path: Path, *, seq_len: int) -> Shard:
    """Map a shard.

    Raises:
        DataError: no such file, no permission, or not a shard with rows of `seq_len` + 1 ids.
    """
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"{path} cannot be opened as a token shard: {error}. "
            "It is missing, unreadable or truncated: restore it, or prepare the data again.",
            file=str(path),
        ) from error
    columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
    kind = columns["ids"].type if "ids" in columns else None
    if kind not in (pa.list_(pa.uint16(), seq_len + 1), pa.list_(pa.int32(), seq_len + 1)) or "trained" not in columns:
        raise DataError(
            f"{path}: column ids has type {kind}; rows of seq_len {seq_len} need uint16 or int32 lists of "
            f"{seq_len + 1}. Prepare the data again with --seq-len {seq_len}.",
            file=str(path),
        )
    return Shard(
        ids=columns["ids"].flatten().to_numpy(zero_copy_only=True).reshape(-1, seq_len + 1),
        trained=columns["trained"].to_numpy(zero_copy_only=True),
        mask_bits=mask_bits(columns["mask"]) if "mask" in columns else None,
    )


def verify_files(manifest: Manifest, *, directory: str) -> None:
    """Read every shard of a prepared directory and compare it with its manifest.

    Raises:
        DataError: a file whose bytes changed, or a row with an id outside the vocabulary; names file and row.
    """
    for split in manifest.splits.values():
        for info in split.shards:
            path = Path(directory) / info.file
            shard = open_shard(path, seq_len=manifest.seq_len)
            rows = np.arange(len(shard.ids))
            refuse_foreign_ids(shard.ids, path=str(path), rows=rows, vocab_size=manifest.tokenizer.vocab_size)
            if file_digest(path) != info.xxh3:
                raise DataError(
                    f"{path} is not the file that was written: its xxh3 is {file_digest(path)}, the manifest says "
                    f"{info.xxh3}. Copy it again, or prepare the data again.",
                    file=str(path),
                )


def refuse_foreign_ids(ids: NDArray[Any], *, path: str, rows: Int64s, vocab_size: int) -> None:
    """Refuse ids [N, seq_len + 1] that no vocabulary of this size has.

    Args:
        rows: [N], where they stand in the shard at `path`.
    Raises:
        DataError: names shard and row.
    """
    if ids.size == 0 or (ids.min() >= 0 and ids.max() < vocab_size):
        return
    wrong = int(rows[np.flatnonzero(((ids < 0) | (ids >= vocab_size)).any(axis=1))[0]])
    raise DataError(
        f"{path} row {wrong} has ids outside the vocabulary of {vocab_size}. Prepare the data again.",
        file=path,
        row=wrong,
    )


def columns_of(table: pa.Table) -> dict[str, Any]:  # Any: arrays of any type
    """The columns of a table, each as one array; in place where the table is of one chunk."""
    columns = {name: table.column(name) for name in table.column_names}
    return {name: c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for name, c in columns.items()}


def prefix_mask(trained: NDArray[Any], *, seq_len: int) -> NDArray[np.bool_]:
    """[N, seq_len]: the first `trained` [N] targets of each row."""
    mask: NDArray[np.bool_] = np.arange(seq_len)[None, :] < trained[:, None]
    return mask


def pack_mask(mask: NDArray[np.bool_]) -> pa.Array:
    """[N, seq_len] as one bit a target."""
    bits = np.packbits(mask, axis=1)  # [N, ceil(seq_len / 8)]
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(bits.shape[1]), len(bits), [None, pa.py_buffer(bits.tobytes())]
    )


def mask_bits(column: Any) -> NDArray[np.uint8]:  # Any: pyarrow's stubs know no fixed-size binary
    """[N, ceil(seq_len / 8)]: the bytes of a column that `pack_mask` made, in place."""
    bits = np.frombuffer(memoryview(column.buffers()[1]), dtype=np.uint8).reshape(-1, column.type.byte_width)
    return bits[column.offset : column.offset + len(column)]


def unpack_mask(bits: NDArray[np.uint8], *, seq_len: int) -> NDArray[np.bool_]:
    """The inverse of `pack_mask`, of the bytes that `mask_bits` gives."""
    return np.unpackbits(bits, axis=1, count=seq_len).view(np.bool_)
