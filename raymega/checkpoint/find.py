"""Which checkpoints there are, and which one a run goes on from: the newest that is whole.

    step-40   no manifest: never published           passed over
    step-30   a shard is missing                     passed over, with a warning that names what it held
    step-20   whole                                  this one

Steps are compared as numbers. A directory with another name is not ours.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from raymega.checkpoint.faults import Needs, faults_by_checksum, faults_by_size, unmet
from raymega.checkpoint.store import Store, join_uri, open_store, read_bytes
from raymega.errors import StateError
from raymega.layout.checkpoint_layout import MANIFEST, directory_of, step_of
from raymega.layout.checkpoint_manifest import Manifest, parse

FULL_CHECK_BYTES = 4 * 2**30
"""Checkpoints up to this size are read in full before they are chosen (some seconds); of larger ones the sizes are
compared, and each worker checks what it loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint to load: its directory, what it is, and what was wrong with newer ones."""

    uri: str
    manifest: Manifest
    warnings: tuple[str, ...] = ()


@contextmanager
def reading(store: Store) -> Iterator[None]:
    """Turn a failure of the storage into a StateError that names node and place."""
    try:
        yield
    except OSError as error:
        raise StateError(f"{store.place} cannot be read on {platform.node()}: {error}") from error


def read_manifest(store: Store) -> Manifest:
    """The manifest in a checkpoint's directory. Raises: StateError if it cannot be had, naming node and place."""
    with reading(store):
        size = next((entry.size_bytes for entry in store.list() if entry.name == MANIFEST), None)
        if size is None:
            raise StateError(f"{store.place} on {platform.node()} has no {MANIFEST}: no complete checkpoint is there")
        data = read_bytes(store, MANIFEST, size_bytes=size)
    try:
        return parse(data.decode())
    except UnicodeDecodeError as error:
        raise StateError(f"{store.place}: the manifest is corrupt: {error}") from error
    except StateError as error:
        raise StateError(f"{store.place}: {error}", **error.facts) from error


def steps_in(store: Store) -> tuple[int, ...]:
    """Steps that have a directory, published or not, ascending."""
    steps = (step_of(entry.name) for entry in store.list() if entry.is_dir)
    return tuple(sorted(step for step in steps if step is not None))


def published_steps(store: Store) -> tuple[int, ...]:
    """Steps whose manifest is there, ascending. Raises: StateError if the storage cannot be read."""
    with reading(store):
        return tuple(step for step in steps_in(store) if is_published(store, step))


def is_published(store: Store, step: int) -> bool:
    """Whether the manifest of a step is there."""
    return any(entry.name == MANIFEST for entry in store.sub(directory_of(step)).list())


def newest_complete(uri: str, *, needs: Needs | None = None, full_check_bytes: int = FULL_CHECK_BYTES) -> Found | None:
    """The newest whole checkpoint in a directory of checkpoints; None if none was ever published there.

    Raises: StateError naming every fault if some were published and none is whole: a run must not start afresh then.
    """
    store = open_store(uri)
    warnings: list[str] = []
    for step in reversed(published_steps(store)):
        try:
            return _checked(store, uri, step, needs or Needs(), full_check_bytes, tuple(warnings))
        except StateError as error:
            warnings.append(f"step {step} is passed over: {error}")
    if warnings:
        raise StateError(
            f"no checkpoint in {store.place} is whole. {'. '.join(warnings)}. "
            "Repair them, or start afresh with --resume none in another directory.",
            warnings=tuple(warnings),
        )
    return None


def at_step(uri: str, *, step: int, needs: Needs | None = None, full_check_bytes: int = FULL_CHECK_BYTES) -> Found:
    """The checkpoint of one step. Raises: StateError if it is not there (naming those that are) or not whole."""
    store = open_store(uri)
    published = published_steps(store)
    if step not in published:
        there = ", ".join(map(str, published)) or "none"
        raise StateError(f"{store.place} has no checkpoint of step {step}; there are: {there}")
    return _checked(store, uri, step, needs or Needs(), full_check_bytes, ())


def _checked(
    store: Store, uri: str, step: int, needs: Needs, full_check_bytes: int, warnings: tuple[str, ...]
) -> Found:
    directory = store.sub(directory_of(step))
    manifest = read_manifest(directory)
    check = faults_by_checksum if manifest.size_bytes <= full_check_bytes else faults_by_size
    with reading(directory):
        faults = (*unmet(manifest, needs), *check(manifest, directory))
    if manifest.step != step:
        faults = (f"its manifest is of step {manifest.step}", *faults)
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise StateError(f"{directory.place}: {faults[0]}{more}", faults=faults)
    return Found(uri=join_uri(uri, directory_of(step)), manifest=manifest, warnings=warnings)
