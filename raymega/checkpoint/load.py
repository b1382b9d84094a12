"""Loading: any checkpoint into any layout, by overlap of boxes.

    stored pieces of wq       0:96,0:48        0:96,48:96
    wanted box                      0:96,24:72                each overlap is copied from its piece

A worker reads only the pieces that its boxes overlap, one at a time, and checks each before it is used. Nothing is
read unless the pieces cover every tensor once, and the tensors of the checkpoint are those of this model: a part that
would silently start afresh, or be dropped, is an error.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import torch
import xxhash

from raymega.checkpoint.faults import header_fault
from raymega.checkpoint.find import read_manifest
from raymega.checkpoint.safetensors_header import Place, read_header
from raymega.checkpoint.state_item import TORCH_DTYPES, StateItem
from raymega.checkpoint.store import Source, Store, open_store
from raymega.errors import StateError
from raymega.layout.checkpoint_manifest import Manifest, Piece, ShardFile, TensorInfo, gaps, misfits
from raymega.layout.shard_box import Box

Wanted = dict[tuple[str, str], list[StateItem]]


def load(uri: str, *, items: Sequence[StateItem], expected: Iterable[TensorInfo]) -> Manifest:
    """Fill all items from the checkpoint in the directory `uri`; its manifest says which state that is.

    Args:
        items: what this worker holds; their tensors are written in place.
        expected: every tensor of the whole model's state (`tensors_of`), whoever holds it.
    Raises:
        StateError: the checkpoint is not there, does not fit, or is damaged. The items are then undefined.
    """
    store = open_store(uri)
    manifest = read_manifest(store)
    _fill(items, manifest=manifest, store=store, faults=misfits(manifest, expected))
    return manifest


def load_params(uri: str, *, items: Sequence[StateItem], expected: Iterable[TensorInfo]) -> Manifest:
    """As `load`, but parameters only: other kinds of the checkpoint are left, other kinds of items untouched."""
    store = open_store(uri)
    manifest = read_manifest(store)
    wanted = (tensor for tensor in expected if tensor.kind == "param")
    left = (tensor for tensor in manifest.tensors if tensor.kind != "param")
    params = [item for item in items if item.kind == "param"]
    _fill(params, manifest=manifest, store=store, faults=misfits(manifest, (*wanted, *left)))
    return manifest


def read_tensor(info: TensorInfo, *, manifest: Manifest, store: Store) -> torch.Tensor:
    """One whole tensor of a checkpoint whose files cover it. Raises: StateError if what is there is damaged."""
    tensor = torch.empty(info.shape, dtype=TORCH_DTYPES[info.dtype])
    whole = StateItem(name=info.name, kind=info.kind, shape=info.shape, box=Box.whole(info.shape), tensor=tensor)
    _read((whole,), manifest=manifest, store=store)
    return tensor


def stored_pieces(manifest: Manifest, *, store: Store) -> Iterator[tuple[Piece, torch.Tensor]]:
    """Every piece of a checkpoint, file by file. Raises: StateError if one is damaged."""
    for shard in manifest.shards:
        yield from _pieces_of(shard, shard.pieces, manifest=manifest, store=store)


def _fill(items: Sequence[StateItem], *, manifest: Manifest, store: Store, faults: tuple[str, ...]) -> None:
    faults = (*faults, *_unknown(items, manifest), *gaps(manifest))
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise StateError(
            f"{store.place} does not fit: {faults[0]}{more}. Use the model and optimizer that it was written with, "
            "or run.init_from to take its parameters only.",
            faults=faults,
        )
    _read(items, manifest=manifest, store=store)  # whatever an item's box is, pieces cover it once: `gaps` found none


def _read(items: Iterable[StateItem], *, manifest: Manifest, store: Store) -> None:
    wanted: Wanted = defaultdict(list)
    for item in items:
        wanted[item.name, item.kind].append(item)
    for shard in manifest.shards:
        pieces = [piece for piece in shard.pieces if _takers(piece, wanted)]
        if pieces:
            _read_file(shard, pieces, manifest=manifest, store=store, wanted=wanted)


def _unknown(items: Iterable[StateItem], manifest: Manifest) -> tuple[str, ...]:
    """Items whose whole tensor the checkpoint does not hold in that shape and type."""
    there = set(manifest.tensors)
    missing = [item.info for item in items if item.info not in there]
    return tuple(f"{i.name} ({i.kind}) as {i.dtype} {list(i.shape)} is not in the checkpoint" for i in missing)


def _takers(piece: Piece, wanted: Wanted) -> list[tuple[StateItem, Box]]:
    overlaps = ((item, item.box.overlap(piece.box)) for item in wanted.get((piece.name, piece.kind), ()))
    return [(item, box) for item, box in overlaps if box is not None]


def _read_file(shard: ShardFile, pieces: Sequence[Piece], *, manifest: Manifest, store: Store, wanted: Wanted) -> None:
    for piece, tensor in _pieces_of(shard, pieces, manifest=manifest, store=store):
        for item, box in _takers(piece, wanted):
            item.part(box).tensor.copy_(tensor[box.within(piece.box)])


def _pieces_of(
    shard: ShardFile, pieces: Iterable[Piece], *, manifest: Manifest, store: Store
) -> Iterator[tuple[Piece, torch.Tensor]]:
    """Some pieces of a file, each checked."""
    try:
        with store.open(shard.file) as source:
            header = read_header(source)
            fault = header_fault(header, shard, manifest)
            if fault is not None:
                raise StateError(fault)
            for piece in pieces:
                yield piece, _read_piece(source, piece, header.places[piece.key])
    except OSError as error:
        raise StateError(f"{store.place}/{shard.file} cannot be read: {error}") from error
    except StateError as error:
        raise StateError(f"{store.place}/{shard.file}: {error}", **error.facts) from error


def _read_piece(source: Source, piece: Piece, place: Place) -> torch.Tensor:
    if place.shape != piece.box.sizes:
        raise StateError(f"{piece.key} has shape {list(place.shape)}")
    buffer = torch.empty(place.size_bytes, dtype=torch.uint8)
    data = buffer.numpy().data
    if source.read_into(data, offset=place.offset) < place.size_bytes:
        raise StateError(f"it ends within {piece.key}")
    if xxhash.xxh3_128(data).hexdigest() != piece.checksum:
        raise StateError(f"{piece.key} is corrupt: its bytes do not have the checksum in the manifest")
    return buffer.view(TORCH_DTYPES[place.dtype]).view(piece.box.sizes)
