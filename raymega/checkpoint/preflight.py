"""Before step 1: would the first save work here? Asked on every node, since disks and permissions are a node's own.

free bytes      < one checkpoint                         refuse
                < keep + 1 of them, less what is there   warn: the run will fill the disk
a test file     cannot be written or removed             refuse
"""

import platform
import secrets
from dataclasses import dataclass

from raymega.checkpoint.find import steps_in
from raymega.checkpoint.store import Store, write_bytes
from raymega.errors import StateError
from raymega.layout.checkpoint_layout import directory_of

_TEST_BYTES = b"raymega writes here\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a node has found: bytes that can be written (None: no bound), bytes of checkpoints that are there."""

    node: str
    place: str
    free_bytes: int | None
    used_bytes: int


def probe(store: Store) -> Probe:
    """Write a small file, remove it, and count.

    Raises: StateError naming node, place and cause if it cannot be written.
    """
    node = platform.node()
    name = f".raymega-test-{secrets.token_hex(4)}"
    try:
        write_bytes(store, name, _TEST_BYTES)
        store.delete(name)
        used = sum(entry.size_bytes for step in steps_in(store) for entry in store.sub(directory_of(step)).list())
        return Probe(node=node, place=store.place, free_bytes=store.free_bytes(), used_bytes=used)
    except OSError as error:
        raise StateError(
            f"no checkpoint can be written to {store.place} on {node}: {error}. "
            "Set checkpoint.path to a directory that every node can write to.",
            node=node,
            place=store.place,
        ) from error


def judge(probe: Probe, *, checkpoint_bytes: int, keep: int) -> tuple[str, ...]:
    """Warnings about the room for checkpoints; a new one is written before the oldest goes.

    Args:
        checkpoint_bytes: of one checkpoint (`layout.checkpoint_manifest.estimate_bytes`).
        keep: how many are kept.
    Raises:
        StateError: there is no room for one.
    """
    free = probe.free_bytes
    if free is None:
        return ()
    if free < checkpoint_bytes:
        raise StateError(
            f"a checkpoint has {checkpoint_bytes:,} bytes; {probe.place} on {probe.node} has {free:,} bytes free. "
            "Make room, or set checkpoint.path to a larger disk.",
            checkpoint_bytes=checkpoint_bytes,
            free_bytes=free,
        )
    needed = max(0, (keep + 1) * checkpoint_bytes - probe.used_bytes)
    if free < needed:
        return (
            f"checkpoint.keep={keep} needs {needed:,} more bytes ({keep} of {checkpoint_bytes:,} and one being "
            f"written); {probe.place} on {probe.node} has {free:,} bytes free. Lower keep, or make room.",
        )
    return ()
