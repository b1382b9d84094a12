"""Small corpora and prepared directories for the tests of this room and of the driver."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from raymega.data.documents import spans_of
from raymega.data.encode import Encoder
from raymega.data.inputs import expand
from raymega.data.manifest import Manifest, load_manifest
from raymega.data.token_file import TokenSplit
from raymega.data.tokenizer import ByteTokenizer, Tokenizer
from raymega.data.write import Layout, write_dataset


def prepare_here(
    inputs: Sequence[str | Path],
    out: Path,
    *,
    seq_len: int = 8,
    valid_fraction: float = 0.0,
    tokenizer: Tokenizer | None = None,
    shard_bytes: int = 1 << 20,
) -> Manifest:
    """Prepare in this process, without Ray."""
    tokenizer = tokenizer or ByteTokenizer()
    encoder = Encoder(tokenizer=tokenizer)
    spans = spans_of(expand([str(path) for path in inputs]))
    layout = Layout(tokenizer=tokenizer, seq_len=seq_len, valid_fraction=valid_fraction, shard_bytes=shard_bytes)
    return write_dataset((t for span in spans for t in encoder.tables(span)), out=out, layout=layout)


def numbered_rows(directory: Path, *, num_rows: int, seq_len: int = 24, shard_bytes: int = 4096) -> Path:
    """A prepared directory whose row k starts with the digits of k (for k < 10,000), all targets trained."""
    text = "".join(f"{k:04d}" + "." * (seq_len - 4) for k in range(num_rows))
    source = directory / "numbered.jsonl"
    source.write_text(json.dumps({"text": text}))
    out = directory / "numbered"
    prepare_here([source], out, seq_len=seq_len, shard_bytes=shard_bytes)
    return out


def number_of(row: np.ndarray) -> int:
    """Which row of `numbered_rows` this is."""
    return int(bytes(row[:4].tolist()).decode())


def split_of(directory: Path, split: str = "train") -> TokenSplit:
    return TokenSplit.of(load_manifest(str(directory)), directory=str(directory), split=split)


def text_of(directory: Path, split: str = "train") -> bytes:
    """The stream of a byte-level split, ends of documents as newlines of record."""
    rows = split_of(directory, split).gather(np.arange(split_of(directory, split).num_rows))
    stream = np.concatenate([rows.ids[:1, 0], rows.ids[:, 1:][rows.mask]])
    return bytes(np.where(stream == 256, 0x1E, stream).astype(np.uint8).tolist())
