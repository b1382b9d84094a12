"""Which state a checkpoint holds, as one number: the same whatever mesh wrote it, another if one bit differs.

    pieces of wq, as its writers cut it     fingerprints that add up to that of wq
    those of all tensors, by name and kind  xxh3_64 -> 5d1f6c0a93be2471

Checksums in the manifest say that files are as they were written; of two meshes, files differ and the state does not.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import xxhash

from raymega.checkpoint.find import read_manifest
from raymega.checkpoint.load import stored_pieces
from raymega.checkpoint.store import Store, open_store
from raymega.checkpoint.verify import CheckpointRow
from raymega.layout.checkpoint_layout import directory_of
from raymega.train.fingerprint import fingerprint


def with_states(rows: Iterable[CheckpointRow], *, uri: str) -> tuple[CheckpointRow, ...]:
    """The rows of `verify(uri)`; those that are complete with the fingerprint of their state."""
    place = open_store(uri)
    return tuple(
        replace(row, state=state_fingerprint(_store_of(row, place))) if row.standing == "complete" else row
        for row in rows
    )


def state_fingerprint(store: Store) -> str:
    """Of all tensors of the checkpoint in `store`. Raises: StateError if one is damaged."""
    manifest = read_manifest(store)
    shapes = {(tensor.name, tensor.kind): tensor.shape for tensor in manifest.tensors}
    found: Counter[tuple[str, str]] = Counter()
    for piece, tensor in stored_pieces(manifest, store=store):
        at = (piece.name, piece.kind)
        found[at] += fingerprint(tensor, box=piece.box, shape=shapes[at])
    told = "\n".join(f"{name} {kind} {value % (1 << 64):016x}" for (name, kind), value in sorted(found.items()))
    return xxhash.xxh3_64(told.encode()).hexdigest()


def _store_of(row: CheckpointRow, place: Store) -> Store:
    """A checkpoint's own directory: that which was named, or one below it."""
    assert row.step is not None, "one that is complete has a manifest"
    return place if row.place == place.place else place.sub(directory_of(row.step))
