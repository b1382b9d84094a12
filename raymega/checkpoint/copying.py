"""A checkpoint copied to another place, whole or not at all: its files as they are, its manifest last.

runs/demo/checkpoints/step-120/  manifest.json  g1-w0-..   -->   s3://bucket/hot/step-120/  g1-w0-..  manifest.json
"""

from raymega.checkpoint.faults import faults_by_size
from raymega.checkpoint.find import read_manifest, reading
from raymega.checkpoint.store import Store, write_bytes
from raymega.errors import StateError
from raymega.layout.checkpoint_layout import MANIFEST

CHUNK_BYTES = 16 * 2**20


def copy_checkpoint(source: Store, target: Store) -> None:
    """Copy the checkpoint in the directory `source` into the directory `target`.

    Raises: StateError if it is not whole, or goes while it is copied; OSError if `target` cannot be written.
    """
    manifest = read_manifest(source)
    for shard in manifest.shards:
        _copy_file(source, target, shard.file, size_bytes=shard.size_bytes)
    with reading(target):
        faults = faults_by_size(manifest, target)
    if faults:
        raise StateError(f"{source.place} is not whole: {faults[0]}. Take another step.", faults=faults)
    write_bytes(target, MANIFEST, manifest.to_text().encode())


def _copy_file(source: Store, target: Store, name: str, *, size_bytes: int) -> None:
    buffer, offset = memoryview(bytearray(min(CHUNK_BYTES, max(size_bytes, 1)))), 0
    with reading(source), source.open(name) as read, target.create(name) as written:
        while chunk := read.read_into(buffer, offset=offset):
            written.write(buffer[:chunk])
            offset += chunk
