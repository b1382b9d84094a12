"""`run.init_from`: which checkpoint gives a new run its parameters, and whether it can.

    runs/old                       a run: its newest whole checkpoint
    runs/old/checkpoints           a directory, or prefix, of checkpoints: the newest whole one
    runs/old/checkpoints/step-40   that one

Weights only: optimizer, position in the data and learning rate begin afresh. The mesh that wrote it does not matter.
"""

from pathlib import Path

from raymega.checkpoint.faults import faults_by_size
from raymega.checkpoint.find import newest_complete, read_manifest, reading, steps_in
from raymega.checkpoint.store import Store, open_store
from raymega.config.schema import Config
from raymega.driver.going_on import tensors_of_model
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import StateError
from raymega.layout.checkpoint_layout import MANIFEST
from raymega.layout.checkpoint_manifest import Manifest, misfits


def check_origin(config: Config, *, tokenizer: str) -> tuple[str, ...]:
    """Refuse an origin that cannot start this run; else what there is to warn of.

    Args:
        config: as resolved; its `run.init_from` is a checkpoint's own directory.
        tokenizer: fingerprint of the run's tokenizer.
    Raises: StateError if it is not there, not whole, or of another model.
    """
    if config.run.init_from is None:
        return ()
    store = open_store(config.run.init_from)
    manifest = read_manifest(store)
    with reading(store):
        faults = (*faults_by_size(manifest, store), *_misfits(manifest, config))
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise StateError(
            f"run.init_from: {store.place} cannot start this run: {faults[0]}{more}. Name a whole checkpoint, and use "
            "the model section of the config that it was trained with.",
            faults=faults,
        )
    if manifest.tokenizer == tokenizer:
        return ()
    return (f"run.init_from: {store.place} was trained with another tokenizer, whose ids stand for other text",)


def checkpoint_at(place: str) -> str:
    """The directory of the checkpoint that `place` comes to now. Raises: StateError if there is none that is whole."""
    store = open_store(place)
    with reading(store):
        if _is_checkpoint(store):
            return place
        has_steps = bool(steps_in(store))
    run = RunDirectory(path=Path(place))
    if "://" not in place and run.config.is_file():
        place = run.read_config().checkpoint.path or str(run.checkpoints)
    elif not has_steps:
        raise StateError(
            f"run.init_from: {store.place} is no checkpoint, and holds none. Name a run, or a step-N of one."
        )
    found = newest_complete(place)
    if found is None:
        raise StateError(f"run.init_from: {place} has no complete checkpoint yet. Wait for one, or name another.")
    return found.uri


def _is_checkpoint(store: Store) -> bool:
    return any(entry.name == MANIFEST for entry in store.list())


def _misfits(manifest: Manifest, config: Config) -> tuple[str, ...]:
    wanted = (tensor for tensor in tensors_of_model(config) if tensor.kind == "param")
    left = (tensor for tensor in manifest.tensors if tensor.kind != "param")
    return misfits(manifest, (*wanted, *left))
