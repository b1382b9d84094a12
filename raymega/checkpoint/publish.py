"""Publishing, by the controller: from files of all workers to a checkpoint that exists.

    1  every file is there with its length, and together they hold every tensor once
    2  the manifest, atomically        <- from here on this is the newest checkpoint
    3  older ones than the last `keep` go: manifest first, then files, so that a half-removed one does not count
    4  leftovers of attempts that broke off go

Killed at any point, at least one complete checkpoint remains, the one before or this one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raymega.checkpoint.faults import faults_by_size
from raymega.checkpoint.find import is_published, read_manifest, steps_in
from raymega.checkpoint.store import Store, read_bytes, write_bytes
from raymega.errors import StateError
from raymega.layout.checkpoint_layout import MANIFEST, SET_ASIDE, directory_of, is_ours, to_remove
from raymega.layout.checkpoint_manifest import Manifest, ShardFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publication did; a clean-up that failed is a warning, the checkpoint exists."""

    removed: tuple[int, ...]
    warnings: tuple[str, ...]


def shards_of(records: Iterable[Mapping[str, Any]]) -> tuple[ShardFile, ...]:
    """The files that workers reported, by name."""
    return tuple(sorted((ShardFile.from_json(dict(r)) for r in records), key=lambda shard: shard.file))


def publish(store: Store, *, manifest: Manifest, keep: int) -> Published:
    """Make `manifest` the newest checkpoint of the directory `store`, and remove what is older than the last `keep`.

    Raises:
        StateError: a file is missing or short, or a part of the state is in none; facts: `faults`. Nothing changed.
        OSError: the storage failed before the manifest was there; nothing changed.
    """
    directory = store.sub(directory_of(manifest.step))
    faults = faults_by_size(manifest, directory)
    if faults:
        raise StateError(
            f"step {manifest.step} is not published: {faults[0]} ({directory.place}). All workers and the controller "
            "must see the same storage.",
            faults=faults,
        )
    write_bytes(directory, MANIFEST, manifest.to_text().encode())
    warnings: list[str] = []
    removed: list[int] = []
    try:
        _remove_leftovers(store, manifest)
        for step in to_remove(_complete_steps(store), newest=manifest.step, keep=keep):
            _remove(store.sub(directory_of(step)))
            store.delete(directory_of(step))
            removed.append(step)
    except OSError as error:
        warnings.append(f"cleaning up {store.place} after step {manifest.step} failed: {error}")
    return Published(removed=tuple(removed), warnings=tuple(warnings))


def set_aside(store: Store, *, after_step: int) -> tuple[int, ...]:
    """Withdraw checkpoints later than `after_step`, for a run that goes back there; their files stay.

    The manifest is kept beside them under another name. Else the next resume would jump to a future that was left.
    """
    later = tuple(step for step in steps_in(store) if step > after_step and is_published(store, step))
    for step in reversed(later):
        directory = store.sub(directory_of(step))
        size = next(entry.size_bytes for entry in directory.list() if entry.name == MANIFEST)
        write_bytes(directory, SET_ASIDE, read_bytes(directory, MANIFEST, size_bytes=size))
        directory.delete(MANIFEST)
    return later


def _complete_steps(store: Store) -> tuple[int, ...]:
    """Steps whose manifest and sizes are in order; a damaged checkpoint neither counts nor is touched."""
    return tuple(step for step in steps_in(store) if is_published(store, step) and _is_whole(store, step))


def _is_whole(store: Store, step: int) -> bool:
    directory = store.sub(directory_of(step))
    try:
        return not faults_by_size(read_manifest(directory), directory)
    except StateError:
        return False


def _remove_leftovers(store: Store, manifest: Manifest) -> None:
    """Files of broken attempts: in this checkpoint's directory, and in unpublished ones of earlier steps."""
    keep = {MANIFEST, *(shard.file for shard in manifest.shards)}
    own = store.sub(directory_of(manifest.step))
    for entry in own.list():
        if is_ours(entry.name) and entry.name not in keep:
            own.delete(entry.name)
    for step in steps_in(store):
        if step < manifest.step and not is_published(store, step) and not _is_set_aside(store, step):
            _remove(store.sub(directory_of(step)))
            store.delete(directory_of(step))


def _is_set_aside(store: Store, step: int) -> bool:
    return any(entry.name == SET_ASIDE for entry in store.sub(directory_of(step)).list())


def _remove(directory: Store) -> None:
    """Our files of a checkpoint, the manifest first."""
    names = [entry.name for entry in directory.list() if not entry.is_dir and is_ours(entry.name)]
    for name in sorted(names, key=lambda name: name != MANIFEST):
        directory.delete(name)
