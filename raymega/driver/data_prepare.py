"""Prepare text for training: readers in parallel on Ray Data, one writer in order, nothing half-written.

    inputs -> files -> spans            driver: names and sizes only; what is refused here starts no Ray
    spans  -> tables of ids             Ray Data tasks, each a span at a time (preserve_order, bounded by STORE_BYTES)
    tables -> rows -> shards, manifest  driver: packs as they come, writes each shard when it is full

The writer sees the tables in the order of the files, so the result is the same for one reader or a hundred; no process
holds more than a few spans or one shard.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray
import ray.data

from raymega.config.local_path import local_path
from raymega.config.schema import LONGEST_ROW
from raymega.data.bpe import train_bpe
from raymega.data.documents import Span, pieces_of, spans_of
from raymega.data.encode import Encoder
from raymega.data.inputs import expand
from raymega.data.manifest import Manifest
from raymega.data.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer, tokenizer_of_json
from raymega.data.write import NOTHING_TRAINED, Layout, write_dataset
from raymega.driver.cluster.ray_data import quiet, tables_of
from raymega.driver.cluster.ray_session import ray_session
from raymega.errors import ConfigError, DataError

STORE_BYTES = 32 << 20
"""What the tables that wait for the writer may take of the object store."""

WINDOW_SPANS = 4096
"""Spans of one Ray Data pipeline; larger inputs take several, one after another."""

BPE_CHARS = 64 << 20
"""`train:VOCAB` looks at about so much text, from all over the inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What `prepare` made, and of how many input files."""

    directory: Path
    manifest: Manifest
    num_files: int


def prepare(
    inputs: tuple[str, ...],
    *,
    out: str,
    tokenizer: str,
    seq_len: int,
    valid_fraction: float = 0.0,
    eod_token: str | None = None,
    text_field: str = "text",
) -> Prepared:
    """Turn files of text into the prepared directory `out`; a Ray that is not there yet lives as long as it takes.

    Args:
        inputs: files, directories, globs or URIs of txt, jsonl or parquet.
        out: a directory that does not exist yet.
        tokenizer: byte, a built-in name, the path of a tokenizer.json, or train:VOCAB for a BPE of these inputs.
        seq_len: trained positions of a row.
        valid_fraction: share of the ids that becomes the validation split.
        eod_token: which token of a tokenizer.json ends a document, where its name does not tell.
        text_field: the field of jsonl and column of parquet that holds the text.
    Raises:
        ConfigError, DataError: `out` does not exist then.
    """
    _check(out, seq_len=seq_len, valid_fraction=valid_fraction)
    files = expand(inputs)
    spans = spans_of(files)
    if not spans:
        raise DataError(NOTHING_TRAINED)
    encoder = Encoder(
        tokenizer=_tokenizer(tokenizer, spans=spans, text_field=text_field, eod_token=eod_token), text_field=text_field
    )
    layout = Layout(tokenizer=encoder.tokenizer, seq_len=seq_len, valid_fraction=valid_fraction)
    directory = local_path(out, key="--out")
    with ray_session(cpus=os.cpu_count() or 1), closing(_tables(spans, encoder=encoder)) as tables:
        manifest = write_dataset(tables, out=directory, layout=layout)
    return Prepared(directory=directory, manifest=manifest, num_files=len(files))


def _check(out: str, *, seq_len: int, valid_fraction: float) -> None:
    faults = []
    if not 1 <= seq_len <= LONGEST_ROW:
        faults.append(f"--seq-len {seq_len}: a row trains 1 to {LONGEST_ROW:,} positions. Give for example 256.")
    if not 0 <= valid_fraction < 1:
        faults.append(f"--valid-fraction {valid_fraction:g}: a share lies in [0, 1). Give for example 0.05.")
    if "://" in out:
        faults.append(f"--out {out}: shards are read through memory maps. Give a local or shared directory.")
    elif os.path.exists(local_path(out, key="--out")):
        faults.append(f"--out {out} exists. Give a new directory, or remove this one first.")
    if faults:
        raise ConfigError("\n".join(faults))


def _tokenizer(spec: str, *, spans: tuple[Span, ...], text_field: str, eod_token: str | None) -> Tokenizer:
    if not spec.startswith("train:"):
        return load_tokenizer(spec, eod_token=eod_token)
    size = spec.removeprefix("train:")
    if not size.isdecimal():
        raise ConfigError(f"--tokenizer {spec}: VOCAB in train:VOCAB is a number of ids. Give for example train:4096.")
    json_text = train_bpe(_sample(spans, text_field=text_field), vocab_size=int(size))
    return tokenizer_of_json(json_text, name=f"bpe-{size}")


def _sample(spans: tuple[Span, ...], *, text_field: str) -> Iterator[str]:
    """About BPE_CHARS of text: all spans, or every n-th where they are more."""
    every = max(1, -(-sum(_size_bytes(span) for span in spans) // BPE_CHARS))
    pieces = chain.from_iterable(
        pieces_of(span, text_field=text_field, vocab_size=ByteTokenizer().vocab_size) for span in spans[::every]
    )
    return (text for piece in pieces for text in (piece.prompt, piece.text) if text)


def _size_bytes(span: Span) -> int:
    return span.file.size_bytes if span.file.kind == "parquet" else span.stop - span.start


def _tables(spans: tuple[Span, ...], *, encoder: Encoder) -> Generator[pa.Table, None, None]:
    """The tables of all spans, in order."""
    quiet()
    remaining = iter(spans)
    while window := tuple(islice(remaining, WINDOW_SPANS)):
        numbers = ray.data.from_items(list(range(len(window))), override_num_blocks=len(window))
        options = numbers.context.execution_options
        options.preserve_order = True
        options.resource_limits = ray.data.ExecutionResources(object_store_memory=STORE_BYTES)
        tables = numbers.map_batches(_encode, fn_args=(window, encoder), batch_size=1, batch_format="numpy", num_cpus=1)
        with closing(tables_of(tables)) as blocks:
            yield from (block for block in blocks if block.num_rows)


def _encode(numbers: dict[str, np.ndarray], spans: tuple[Span, ...], encoder: Encoder) -> Iterator[pa.Table]:
    """The tables of the spans with these numbers; runs in a Ray Data task, which has one CPU."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for number in numbers["item"]:
        yield from encoder.tables(spans[number])
