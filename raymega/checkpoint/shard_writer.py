"""Files of a checkpoint: items in, safetensors files out, with the checksums that the manifest keeps.

    g1000001-w0-0-5f1c93aa.safetensors
      header     every key with its place; run, step, generation, worker
      pieces     at most PIECE_BYTES each, and each with its own checksum: what a loader reads, it can check

Written from start to end once; checksums are taken of the bytes on their way.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import xxhash

from raymega.checkpoint.safetensors_header import Entry, header_bytes
from raymega.checkpoint.state_item import StateItem
from raymega.checkpoint.store import Sink, Store
from raymega.layout.checkpoint_layout import FILE_BYTES, PIECE_BYTES, shard_name
from raymega.layout.checkpoint_manifest import Piece, ShardFile

_WRITE_BYTES = 8 * 2**20  # a bounded write, so that a slow disk is not asked for a whole piece at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Which state it is: the run, its committed steps, and the generation that decided the last of them."""

    run_id: str
    step: int
    generation: int


def write_shards(items: Iterable[StateItem], *, store: Store, worker: str, commit: Commit) -> tuple[ShardFile, ...]:
    """Write contiguous items into a checkpoint's directory: one file, or more where they are large."""
    token = secrets.token_hex(4)
    files: list[ShardFile] = []
    for part, group in enumerate(_by_file(items)):
        name = shard_name(generation=commit.generation, worker=worker, part=part, token=token)
        files.append(_write_file(name, group, store=store, worker=worker, commit=commit))
    return tuple(files)


def _by_file(items: Iterable[StateItem]) -> list[list[StateItem]]:
    """Pieces, grouped into files."""
    groups: list[list[StateItem]] = []
    size = FILE_BYTES
    for item in items:
        for box in item.box.cut(max_elements=PIECE_BYTES // item.tensor.element_size()):
            if size >= FILE_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(item.part(box))
            size += box.num_elements * item.tensor.element_size()
    return groups


def _write_file(name: str, pieces: Sequence[StateItem], *, store: Store, worker: str, commit: Commit) -> ShardFile:
    keys = [Piece(name=p.name, kind=p.kind, box=p.box, checksum="").key for p in pieces]
    entries = [
        Entry(key=key, dtype=piece.info.dtype, shape=piece.box.sizes) for key, piece in zip(keys, pieces, strict=True)
    ]
    metadata = {
        "format": "pt", "run_id": commit.run_id, "step": str(commit.step), "generation": str(commit.generation),
        "worker": worker,
    }  # fmt: skip
    header = header_bytes(entries, metadata=metadata)
    whole = xxhash.xxh3_128(header)
    size, written = len(header), []
    with store.create(name) as sink:
        sink.write(header)
        for piece in pieces:
            data = _bytes_of(piece.tensor)
            checksum = _write_piece(sink, data, whole)
            written.append(Piece(name=piece.name, kind=piece.kind, box=piece.box, checksum=checksum))
            size += len(data)
    return ShardFile(file=name, size_bytes=size, checksum=whole.hexdigest(), pieces=tuple(written))


def _write_piece(sink: Sink, data: memoryview, whole: "xxhash.xxh3_128") -> str:
    own = xxhash.xxh3_128()
    for start in range(0, len(data), _WRITE_BYTES):
        chunk = data[start : start + _WRITE_BYTES]
        own.update(chunk)
        whole.update(chunk)
        sink.write(chunk)
    return own.hexdigest()


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data
