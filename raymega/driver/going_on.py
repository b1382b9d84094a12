"""Is a checkpoint one that this run can go on from? Asked before anything is started, or written over.

seed         order of the data, first values and dropout follow from it
samples      step * batch_size is the position in the data: another batch would skip samples, or repeat them
tokenizer    ids of another one stand for other text, even where it has as many
tensors      another model, or another optimizer, has others
"""

from collections.abc import Iterable

from raymega.checkpoint.faults import Needs
from raymega.checkpoint.find import Found, at_step, published_steps
from raymega.checkpoint.store import open_store
from raymega.config.schema import Config
from raymega.control.events import RewindAsked
from raymega.control.states import Checkpoint
from raymega.driver.by_name import named
from raymega.driver.publishing import TOKENS_TOTAL
from raymega.errors import ConfigError, StateError
from raymega.layout.checkpoint_manifest import Manifest, TensorInfo, misfits, tensors_of
from raymega.layout.param_layout import param_specs

AFRESH = "start another run, where run.init_from takes the parameters of this one"


def refuse_unlike(manifest: Manifest, *, config: Config, tokenizer: str) -> None:
    """Refuse to go on from the checkpoint of another run than `config` says.

    Args:
        config: as resolved.
        tokenizer: fingerprint of the run's tokenizer.

    Raises: ConfigError for a key that may not change, StateError for tensors that do not fit.
    """
    step, batch_size = manifest.step, config.training.batch_size
    if manifest.seed != config.run.seed:
        raise ConfigError(
            f"run.seed: {config.run.seed} is not the seed of the checkpoint at step {step}, which is "
            f"{manifest.seed}; order and masks follow from it. Leave run.seed out, or take --resume none."
        )
    if manifest.samples != step * batch_size:
        raise ConfigError(
            f"training.batch_size: {batch_size} is not that of the checkpoint at step {step}, which is "
            f"{manifest.samples // step}; the position in the data follows from it. Use that, or {AFRESH}."
        )
    if manifest.tokenizer != tokenizer:
        raise ConfigError(
            f"data.tokenizer: {config.data.tokenizer} is not the tokenizer of the checkpoint at step {step}; its ids "
            f"stand for other text. Use the one of the run's config.yaml, or {AFRESH}."
        )
    faults = misfits(manifest, tensors_of_model(config))
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise StateError(
            f"the checkpoint at step {step} does not fit: {faults[0]}{more}. Use the model and optimizer of the run's "
            f"config.yaml, or {AFRESH}.",
            faults=faults,
        )


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
