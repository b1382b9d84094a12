"""Is a checkpoint one that this run can go on from? Asked before anything is started, or written over.

seed         order of the data, first values and dropout follow from it
samples      step * batch_size is the position in the data: another batch would skip samples, or repeat them
tokenizer    ids of another one stand for other text, even where it has as many
kept         what the model computes (heads, rotary base, eps of norms ..), and which row is at a position (rows, blend)
tensors      another model, or another optimizer, has others

A corpus is known by its rows, not by its path: it may be moved. All else may change: lr, steps, dropout, the mesh.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raymega.checkpoint.faults import Needs
from raymega.checkpoint.find import Found, at_step, published_steps
from raymega.checkpoint.store import open_store
from raymega.config.schema import Config
from raymega.control.events import RewindAsked
from raymega.control.states import Checkpoint
from raymega.driver.hands.publishing import TOKENS_TOTAL
from raymega.driver.process.by_name import named
from raymega.errors import ConfigError, StateError
from raymega.layout.checkpoint_manifest import Manifest, TensorInfo, misfits, tensors_of
from raymega.layout.param_layout import param_specs

FREE_OF_MODEL = {"dropout", "init"}  # a rate that may follow a schedule; and what no step reads
ROWS_FOLLOW = {"data.tokenizer", "data.seq_len"}
AFRESH = "start another run, where run.init_from takes the parameters of this one and nothing else"


def kept_of(config: Config, *, sources: Sequence[str] | None) -> dict[str, Any]:  # Any: JSON
    """What a run of a resolved config keeps beside seed, batch and tokenizer, by the keys of the config.

    Args:
        sources: what is trained on, as `OpenData` words it, wherever it lies; None: it is not known.
    """
    model = config.model.model_dump(mode="json", exclude=FREE_OF_MODEL)
    data: dict[str, Any] = {"data.seq_len": config.data.seq_len, "data.shuffle": config.data.shuffle}
    known = {} if sources is None else {"data.train": ", ".join(sources)}
    return {f"model.{key}": value for key, value in model.items()} | data | known


def refuse_unlike(manifest: Manifest, *, config: Config, tokenizer: str, kept: Mapping[str, Any]) -> None:
    """Refuse to go on from the checkpoint of another run than `config` says.

    Args:
        config: as resolved.
        tokenizer: fingerprint of the run's tokenizer.
        kept: of `config`. Only what the checkpoint tells of is compared, so that older ones are gone on from.

    Raises: ConfigError for keys that may not change, all at once; StateError for tensors that do not fit.
    """
    step = manifest.step
    was, now = _told_by(manifest), {**_own(config, tokenizer=tokenizer), **kept}
    changed = {key for key in was.keys() & now.keys() if was[key] != now[key]}
    if changed & ROWS_FOLLOW:
        changed.discard("data.train")  # other rows of, perhaps, the same text
    if changed:
        told = "; ".join(f"{key} is {_shown(now[key])}, was {_shown(was[key])}" for key in now if key in changed)
        raise ConfigError(
            f"the checkpoint at step {step} is of another config: {told}. What a model computes, and which rows come "
            f"next, stay the same in a run. Put these keys back as in the run's config.yaml, or {AFRESH}.",
            changed=tuple(sorted(changed)),
        )
    faults = misfits(manifest, tensors_of_model(config))
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise StateError(
            f"the checkpoint at step {step} does not fit: {faults[0]}{more}. Use the model and optimizer of the run's "
            f"config.yaml, or {AFRESH}.",
            faults=faults,
        )


def _own(config: Config, *, tokenizer: str) -> dict[str, Any]:
    """What is kept that every checkpoint tells of."""
    seed, batch = config.run.seed, config.training.batch_size
    return {"run.seed": seed, "training.batch_size": batch, "data.tokenizer": f"of fingerprint {tokenizer}"}


def _told_by(manifest: Manifest) -> dict[str, Any]:
    batch, tokenizer = manifest.samples // manifest.step, f"of fingerprint {manifest.tokenizer}"
    return {"run.seed": manifest.seed, "training.batch_size": batch, "data.tokenizer": tokenizer, **manifest.kept}


def _shown(value: Any) -> str:  # Any: JSON
    return value if isinstance(value, str) else json.dumps(value)


def tensors_of_model(config: Config) -> Iterable[TensorInfo]:
    """Every tensor of the state of a resolved config's model."""
    if config.model.custom is not None:  # only its code knows; loads torch
        found: tuple[TensorInfo, ...] = named("raymega.worker.state:checkpoint_tensors")(config)
        return found
    kinds = ("param",) if config.training.optimizer == "sgd" else ("param", "exp_avg", "exp_avg_sq")
    return tensors_of(param_specs(config.model, seq_len=config.data.seq_len), kinds=kinds)


def needs_of(config: Config) -> Needs:
    """What a checkpoint has to hold for the run of `config` to go on from it."""
    kinds = {"param"} if config.training.optimizer == "sgd" else {"param", "exp_avg", "exp_avg_sq"}
    return Needs(kinds=frozenset(kinds))


def place_of(found: Found) -> Checkpoint:
    """A checkpoint as the brain knows it."""
    tokens = int(found.manifest.scalars.get(TOKENS_TOTAL, 0))
    return Checkpoint(step=found.manifest.step, uri=found.uri, tokens_total=tokens)


def back_to(step: int, *, config: Config, directory: str) -> RewindAsked:
    """The wish to go back to the checkpoint of `step`, as it lies in `directory`.

    Raises: StateError if it is not there (naming those that are) or not whole.
    """
    newest = max(published_steps(open_store(directory)), default=0)  # first: what is published later is noticed by it
    return RewindAsked(request=0, to=place_of(at_step(directory, step=step, needs=needs_of(config))), newest=newest)
