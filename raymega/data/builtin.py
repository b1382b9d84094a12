"""Corpora that ship with raymega, prepared on first use into the user's cache.

    $XDG_CACHE_HOME/raymega/shakespeare-2k-256-<key>/        or ~/.cache/raymega/...; see manifest.py

The key is a digest of the text, the tokenizer and how rows are made, so that a change of any of them prepares anew. Two
processes that come first together both prepare; one result stays, and they are equal.
"""

import os
from importlib.resources import as_file, files
from pathlib import Path

import xxhash

from raymega.config.local_path import local_path
from raymega.data.documents import spans_of
from raymega.data.encode import Encoder
from raymega.data.inputs import expand
from raymega.data.manifest import FORMAT, MANIFEST, file_digest
from raymega.data.tokenizer import Tokenizer
from raymega.data.write import Layout, write_dataset

BUILTIN_CORPORA = ("shakespeare",)
VALID_FRACTION = 0.05


def builtin_directory(name: str, *, tokenizer: Tokenizer, seq_len: int) -> Path:
    """The prepared directory of a built-in corpus; takes a few seconds the first time.

    Raises:
        DataError: the cache cannot be written.
    """
    with as_file(files("raymega") / "corpora" / f"{name}.parquet") as corpus:
        key = xxhash.xxh3_64_hexdigest(
            f"{file_digest(corpus)} {tokenizer.fingerprint} {seq_len} {VALID_FRACTION} {FORMAT}".encode()
        )
        directory = cache_directory() / f"{name}-{seq_len}-{key}"
        if not (directory / MANIFEST).exists():
            encoder = Encoder(tokenizer=tokenizer)
            tables = (table for span in spans_of(expand([str(corpus)])) for table in encoder.tables(span))
            layout = Layout(tokenizer=tokenizer, seq_len=seq_len, valid_fraction=VALID_FRACTION)
            write_dataset(tables, out=directory, layout=layout)
    return directory


def cache_directory() -> Path:
    """Where raymega keeps what it can make again. Raises: ConfigError where this user has no home directory."""
    return local_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", key="XDG_CACHE_HOME") / "raymega"
