"""What is wrong with a checkpoint: every sentence names the file or the part of the state.

by size       the manifest covers the state, every file is there and has its length     a listing
by checksum   besides, every byte and every header is what the writer wrote             a full read
"""

from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from raymega.checkpoint.safetensors_header import Header, read_header
from raymega.checkpoint.store import Store
from raymega.errors import StateError
from raymega.layout.checkpoint_manifest import Manifest, ShardFile, gaps

_READ_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a run must find in a checkpoint to go on from it: kinds of state of every parameter, and scalars."""

    kinds: frozenset[str] = frozenset({"param"})
    scalars: frozenset[str] = frozenset()


def unmet(manifest: Manifest, needs: Needs) -> tuple[str, ...]:
    """Parts of the state that the checkpoint does not hold at all."""
    there = {(tensor.name, tensor.kind) for tensor in manifest.tensors}
    names = {name for name, _ in there}
    kinds = [
        f"it holds no {kind} of {n}" for kind in sorted(needs.kinds) for n in sorted(names) if (n, kind) not in there
    ]
    return (*kinds, *(f"it lacks {scalar}" for scalar in sorted(needs.scalars - manifest.scalars.keys())))


def faults_by_size(manifest: Manifest, store: Store) -> tuple[str, ...]:
    """What a listing of the checkpoint's directory shows."""
    sizes = {entry.name: entry.size_bytes for entry in store.list() if not entry.is_dir}
    found = []
    for shard in manifest.shards:
        size = sizes.get(shard.file)
        if size is None:
            found.append(f"{shard.file} is not there; it holds {_holds(shard)}")
        elif size != shard.size_bytes:
            found.append(f"{shard.file} has {size:,} of its {shard.size_bytes:,} bytes; it holds {_holds(shard)}")
    return (*gaps(manifest), *found)


def faults_by_checksum(manifest: Manifest, store: Store) -> tuple[str, ...]:
    """What a full read shows, besides what a listing does."""
    by_size = faults_by_size(manifest, store)
    if by_size:
        return by_size
    return tuple(fault for shard in manifest.shards for fault in _file_faults(shard, manifest, store))


def header_fault(header: Header, shard: ShardFile, manifest: Manifest) -> str | None:
    """Why a file is not the one that the manifest means, if it is not."""
    says = tuple(header.metadata.get(name) for name in ("run_id", "step", "generation"))
    wants = (manifest.run_id, str(manifest.step), str(manifest.generation))
    if says != wants:
        return f"{shard.file} is of run, step, generation {says}; the manifest of {wants}"
    if list(header.places) != [piece.key for piece in shard.pieces]:
        return f"{shard.file} holds other pieces than the manifest lists"
    return None


def _file_faults(shard: ShardFile, manifest: Manifest, store: Store) -> Iterable[str]:
    try:
        with store.open(shard.file) as source:
            fault = header_fault(read_header(source), shard, manifest)
            if fault is not None:
                yield fault
            whole, buffer, offset = xxhash.xxh3_128(), memoryview(bytearray(_READ_BYTES)), 0
            while got := source.read_into(buffer, offset=offset):
                whole.update(buffer[:got])
                offset += got
    except StateError as error:
        yield f"{shard.file}: {error}"
        return
    except OSError as error:
        yield f"{shard.file} cannot be read: {error}"
        return
    if whole.hexdigest() != shard.checksum:
        yield f"{shard.file} is corrupt: its bytes do not have the checksum in the manifest; it holds {_holds(shard)}"


def _holds(shard: ShardFile) -> str:
    first = shard.pieces[0]
    more = f" and {len(shard.pieces) - 1} more pieces" if len(shard.pieces) > 1 else ""
    return f"{first.name} ({first.kind}) {first.box}{more}"
