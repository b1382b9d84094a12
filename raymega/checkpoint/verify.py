"""What `raymega ckpt ls` and `raymega ckpt verify` say.

step-20  complete      640 samples   13.2 MB
step-40  unpublished                            no manifest: the save did not end
step-60  damaged       1920 samples  13.2 MB    g1000001-w1-0-90b1e7d2.safetensors is not there; it holds ...
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from raymega.checkpoint.faults import faults_by_checksum, faults_by_size
from raymega.checkpoint.find import read_manifest, reading, steps_in
from raymega.checkpoint.store import Store, open_store
from raymega.errors import StateError
from raymega.layout.checkpoint_layout import MANIFEST, SET_ASIDE, directory_of
from raymega.layout.checkpoint_manifest import Manifest

Standing = Literal["complete", "unpublished", "set-aside", "damaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """One checkpoint; what is not known of a damaged or unpublished one is None.

    Args:
        state: fingerprint of the state that it holds, where it was asked for.
        faults: what is wrong with it.
    """

    place: str
    standing: Standing
    step: int | None = None
    generation: int | None = None
    run_id: str | None = None
    samples: int | None = None
    size_bytes: int | None = None
    checksum: str | None = None
    state: str | None = None
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a full read of a checkpoint, or of a directory of them, has shown."""

    place: str
    rows: tuple[CheckpointRow, ...]

    @property
    def ok(self) -> bool:
        """Every published checkpoint is whole, and there is one."""
        standings = [row.standing for row in self.rows]
        return "complete" in standings and "damaged" not in standings


def list_checkpoints(uri: str) -> tuple[CheckpointRow, ...]:
    """The checkpoints in a directory, by step; files are compared by size. Raises: StateError if it cannot be read."""
    store = open_store(uri)
    with reading(store):
        return tuple(_row(store.sub(directory_of(step)), step=step, full=False) for step in steps_in(store))


def verify(uri: str) -> VerifyReport:
    """Read every byte of a checkpoint, or of all checkpoints in a directory, and compare the checksums.

    Raises: StateError if it cannot be read, or no checkpoint is there.
    """
    store = open_store(uri)
    with reading(store):
        rows = tuple(_rows_in_full(store))
    if not rows:
        raise StateError(
            f"{store.place} holds no checkpoint and is none; give a run's checkpoints, or one step-N of it"
        )
    return VerifyReport(place=store.place, rows=rows)


def _rows_in_full(store: Store) -> Iterator[CheckpointRow]:
    if any(entry.name == MANIFEST for entry in store.list()):
        yield _row(store, step=None, full=True)
        return
    for step in steps_in(store):
        yield _row(store.sub(directory_of(step)), step=step, full=True)


def _row(directory: Store, *, step: int | None, full: bool) -> CheckpointRow:
    names = {entry.name for entry in directory.list()}
    if MANIFEST not in names:
        aside = SET_ASIDE in names
        fault = "withdrawn when the run went back to an earlier step" if aside else "no manifest: its save did not end"
        standing: Standing = "set-aside" if aside else "unpublished"
        return CheckpointRow(place=directory.place, step=step, standing=standing, faults=(fault,))
    try:
        manifest = read_manifest(directory)
    except StateError as error:
        return CheckpointRow(place=directory.place, step=step, standing="damaged", faults=(str(error),))
    faults = faults_by_checksum(manifest, directory) if full else faults_by_size(manifest, directory)
    if step not in (None, manifest.step):
        faults = (f"its manifest is of step {manifest.step}", *faults)
    return _known_row(directory, manifest, faults)


def _known_row(directory: Store, manifest: Manifest, faults: tuple[str, ...]) -> CheckpointRow:
    return CheckpointRow(
        place=directory.place, standing="damaged" if faults else "complete", step=manifest.step,
        generation=manifest.generation, run_id=manifest.run_id, samples=manifest.samples,
        size_bytes=manifest.size_bytes, checksum=manifest.checksum, faults=faults,
    )  # fmt: skip
