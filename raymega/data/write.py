"""Write a prepared directory: tables of ids in, shards and manifest out, all or nothing.

    tables of ids, in order -> SplitChooser -> Packer (one a split) -> shards -> manifest -> rename
                                                                .NAME.partial-4f1c/ ------> NAME/

This is the one serial part of preparation, so the result does not depend on how many readers there were. Where a piece
goes to another split than the one before it, the document that it leaves ends there. Whatever fails, a full disk
included, takes the partial directory with it.
"""

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raymega.data.manifest import FORMAT, MANIFEST, TOKENIZER, Manifest, ShardInfo, SplitInfo, TokenizerInfo
from raymega.data.pack import PackedRows, Packer, SplitChooser
from raymega.data.token_file import columns_of, dtype_for, write_shard
from raymega.data.tokenizer import JsonTokenizer, Tokenizer
from raymega.data.unigram import count_targets, unigram_entropy
from raymega.errors import DataError

SHARD_BYTES = 32 << 20
NOTHING_TRAINED = "nothing in the input is trained: it is empty, or all prompts. Give text."


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows are made and cut into files."""

    tokenizer: Tokenizer
    seq_len: int
    valid_fraction: float
    shard_bytes: int = SHARD_BYTES

    @property
    def dtype(self) -> str:
        return dtype_for(self.tokenizer.vocab_size)

    @property
    def rows_per_shard(self) -> int:
        return max(1, self.shard_bytes // ((self.seq_len + 1) * np.dtype(self.dtype).itemsize))


def write_dataset(tables: Iterable[pa.Table], *, out: Path, layout: Layout) -> Manifest:
    """Pack the pieces of `tables` into the new directory `out`.

    Raises:
        DataError: nothing to train on, no permission, or no space; `out` does not exist then.
    """
    with partial_directory(out) as partial:
        splits = {name: _SplitWriter.at(partial, split=name, layout=layout) for name in ("train", "valid")}
        _pack(tables, splits=splits, chooser=SplitChooser(valid_fraction=layout.valid_fraction))
        infos = {name: writer.finish() for name, writer in splits.items()}
        if not infos["train"].rows:
            raise DataError(NOTHING_TRAINED)
        manifest = Manifest(
            format=FORMAT,
            seq_len=layout.seq_len,
            dtype=layout.dtype,
            tokenizer=_tokenizer_info(layout.tokenizer),
            splits={name: info for name, info in infos.items() if info.rows},
        )
        if isinstance(layout.tokenizer, JsonTokenizer):
            (partial / TOKENIZER).write_text(layout.tokenizer.json_text, encoding="utf-8")
        (partial / MANIFEST).write_text(manifest.to_text(), encoding="utf-8")
    return manifest


@contextmanager
def partial_directory(out: Path) -> Iterator[Path]:
    """A new directory beside `out` that becomes `out` if the block ends well, and is removed if it does not.

    Parents that had to be made go with it. If another process made `out` meanwhile, its one stays.
    """
    partial = out.parent / f".{out.name}.partial-{uuid.uuid4().hex[:8]}"
    made = [folder for folder in out.parents if not os.path.exists(folder)]  # the innermost first
    try:
        partial.mkdir(parents=True)
        yield partial
        _sync(partial)
        _publish(partial, out)
    except OSError as error:
        raise _write_error(error, out=out) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):  # `out` lies in them, or something of another's
            for folder in made:
                folder.rmdir()


def _publish(partial: Path, out: Path) -> None:
    try:
        partial.rename(out)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (out / MANIFEST).exists():
            raise
    _sync_one(out.parent)


def _pack(tables: Iterable[pa.Table], *, splits: "dict[str, _SplitWriter]", chooser: SplitChooser) -> None:
    previous, is_open = "train", False  # the split of the piece before, and whether its document goes on
    for table in tables:
        columns = columns_of(table)
        flat = columns["ids"].values.to_numpy(zero_copy_only=True)
        offsets = columns["ids"].offsets.to_numpy()
        pieces = zip(columns["untrained"].to_pylist(), columns["ends"].to_pylist(), strict=True)
        for i, (untrained, ends) in enumerate(pieces):
            ids = flat[offsets[i] : offsets[i + 1]]
            split = chooser.choose(len(ids))
            if is_open and split != previous:
                splits[previous].packer.end_document()
            splits[split].packer.add(ids, num_untrained=untrained)
            if ends:
                splits[split].packer.end_document()
            previous, is_open = split, not ends
        for writer in splits.values():
            writer.write_complete_rows()
    if is_open:
        splits[previous].packer.end_document()


@dataclass(slots=True, kw_only=True)
class _SplitWriter:
    """The shards of one split: rows gather until a shard is full."""

    directory: Path
    split: str
    layout: Layout
    packer: Packer
    counts: NDArray[np.int64]
    waiting: list[PackedRows] = field(default_factory=list)
    shards: list[ShardInfo] = field(default_factory=list)

    @classmethod
    def at(cls, directory: Path, *, split: str, layout: Layout) -> "_SplitWriter":
        tokenizer = layout.tokenizer
        packer = Packer(seq_len=layout.seq_len, eod_id=tokenizer.eod_id, dtype=layout.dtype)
        counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        return cls(directory=directory, split=split, layout=layout, packer=packer, counts=counts)

    def write_complete_rows(self) -> None:
        self._keep(self.packer.take())
        size = self.layout.rows_per_shard
        while sum(len(rows.ids) for rows in self.waiting) >= size:
            rows = _joined(self.waiting)
            self.waiting = [PackedRows(ids=rows.ids[size:], mask=rows.mask[size:])]
            self._write(PackedRows(ids=rows.ids[:size], mask=rows.mask[:size]))

    def finish(self) -> SplitInfo:
        self.write_complete_rows()
        self._keep(self.packer.finish())
        if any(len(rows.ids) for rows in self.waiting):
            self._write(_joined(self.waiting))
        return SplitInfo(
            rows=sum(shard.rows for shard in self.shards),
            trained_tokens=sum(shard.trained_tokens for shard in self.shards),
            unigram_entropy=unigram_entropy(self.counts),
            shards=tuple(self.shards),
        )

    def _keep(self, rows: PackedRows) -> None:
        if len(rows.ids):
            self.counts += count_targets(rows.ids, mask=rows.mask, vocab_size=len(self.counts))
            self.waiting.append(rows)

    def _write(self, rows: PackedRows) -> None:
        path = self.directory / f"{self.split}-{len(self.shards):05d}.arrow"
        self.shards.append(write_shard(path, rows, dtype=self.layout.dtype))


def _joined(parts: list[PackedRows]) -> PackedRows:
    return PackedRows(
        ids=np.concatenate([part.ids for part in parts]), mask=np.concatenate([part.mask for part in parts])
    )


def _tokenizer_info(tokenizer: Tokenizer) -> TokenizerInfo:
    return TokenizerInfo(
        name=tokenizer.name,
        fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        eod_id=tokenizer.eod_id,
    )


def _sync(directory: Path) -> None:
    for path in [*directory.iterdir(), directory]:
        _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_error(error: OSError, *, out: Path) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        way_out = "The disk is full: free space, or choose another --out."
    else:
        way_out = "Choose a --out that this user may write to."
    return DataError(f"{out} cannot be written: {error}. {way_out} Nothing was left behind.", file=str(out))
