"""All that can be refused before anything is started: data, model, directory, checkpoint, room on the disk.

config -> resolved: tokenizer's vocabulary, name, seed         (a directory that is there keeps its seed)
       -> run directory, its lock
       -> data: opened and checked
       -> checkpoint to go on from: the newest whole one, one step, or none
       -> storage: can the first save be written?

    write_config, set_later_aside: what a run changes there, once nothing can refuse it any more
"""

import random
from dataclasses import dataclass
from pathlib import Path

import xxhash

from raymega.checkpoint.find import Found, at_step, newest_complete
from raymega.checkpoint.preflight import judge, probe
from raymega.checkpoint.publish import set_aside
from raymega.checkpoint.store import open_store
from raymega.config.load import check, to_yaml
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.control.states import Checkpoint
from raymega.data.open_data import OpenData, open_data
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.cluster.in_a_job import is_in_a_job
from raymega.driver.going_on import kept_of, needs_of, place_of, refuse_unlike
from raymega.driver.names import draw_name
from raymega.driver.paths import refuse_relative, with_absolute_paths
from raymega.driver.process.by_name import named
from raymega.driver.records.run_dir import RunDirectory, write_whole
from raymega.driver.starting_from import check_origin, checkpoint_at
from raymega.model_shape import checkpoint_bytes, parameter_count

Resume = int | str  # a step, "auto" or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a run reads. `eval_batches`: full batches of one evaluation; 0: no evaluation."""

    data: OpenData
    eval_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run that may start.

    Args:
        config: resolved.
        eval_batches: as in `Inputs`.
        checkpoint: what the run goes on from; None: it starts afresh.
    """

    config: Config
    run_dir: RunDirectory
    checkpoint_dir: str
    checkpoint: Checkpoint | None
    data: OpenData
    eval_batches: int
    warnings: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of all that decides what is computed; where and how long a run trains is not part of it."""
        told = self.config.model_dump(mode="json", include={"model", "data", "training"})
        return xxhash.xxh3_64_hexdigest(repr(told).encode())


def resolved(config: Config) -> tuple[Config, RunDirectory]:
    """Fill in what the config leaves open, and say where the run's directory is; makes nothing.

    Raises: ConfigError, DataError.
    """
    if is_in_a_job():
        refuse_relative(config)
    config = with_absolute_paths(config)
    runs = Path(config.run.dir)
    name = config.run.name or draw_name(runs, dice=random.SystemRandom())
    run_dir = RunDirectory(path=runs / name)
    there = run_dir.read_config() if run_dir.is_begun() else run_dir.read_launched()
    begun = there.run if there is not None else None
    seed = begun.seed if begun is not None else random.SystemRandom().randrange(2**31)
    assert seed is not None, "a run's own config has a seed"
    if config.run.init_from is not None:
        known = begun.init_from if begun is not None else None  # a run that is begun again starts from the same
        origin = known or checkpoint_at(config.run.init_from)
        config = config.model_copy(update={"run": config.run.model_copy(update={"init_from": origin})})
    tokenizer = load_tokenizer(config.data.tokenizer)
    full = resolve(config, vocab_size=tokenizer.vocab_size, name=name, seed=seed)
    check(full)
    return full, run_dir


def inputs_of(config: Config) -> Inputs:
    """Open what a resolved config trains and evaluates on, and load the user's own model, if it is one.

    Raises: DataError, ConfigError.
    """
    assert config.run.seed is not None, "a resolved config has a seed"
    if config.model.custom is not None:
        named("raymega.model.protocol:load_custom")(config)  # loads torch
    data = open_data(config.data, seed=config.run.seed, vocab_size=config.model.vocab_size)
    if not config.training.eval_every:
        return Inputs(data=data, eval_batches=0)
    fetch = data.valid_fetch(batch_size=config.training.batch_size, num_samples=config.training.eval_samples)
    return Inputs(data=data, eval_batches=fetch.order.num_batches)


def prepare(config: Config, run_dir: RunDirectory, *, resume: Resume) -> Prepared:
    """Check everything that a resolved run needs; the caller holds the directory's lock.

    Raises: DataError, StateError, ConfigError.
    """
    inputs = inputs_of(config)
    checkpoint_dir = config.checkpoint.path or str(run_dir.checkpoints)
    found = _found(config, checkpoint_dir, resume=resume, data=inputs.data)
    told = found.warnings if found is not None else check_origin(config, tokenizer=inputs.data.tokenizer.fingerprint)
    room = judge(
        probe(open_store(checkpoint_dir)),
        checkpoint_bytes=checkpoint_bytes(
            parameter_count(config.model, seq_len=config.data.seq_len).total, optimizer=config.training.optimizer
        ),
        keep=config.checkpoint.keep,
    )
    return Prepared(
        config=config,
        run_dir=run_dir,
        checkpoint_dir=checkpoint_dir,
        checkpoint=None if found is None else place_of(found),
        data=inputs.data,
        eval_batches=inputs.eval_batches,
        warnings=(*told, *room),
    )


def _found(config: Config, directory: str, *, resume: Resume, data: OpenData) -> Found | None:
    needs = needs_of(config)
    if resume == "none":
        return None
    found = newest_complete(directory, needs=needs) if resume == "auto" else at_step(
        directory, step=int(resume), needs=needs
    )  # fmt: skip
    if found is not None:
        kept = kept_of(config, sources=data.sources)
        refuse_unlike(found.manifest, config=config, tokenizer=data.tokenizer.fingerprint, kept=kept)
    return found


def write_config(prepared: Prepared) -> None:
    """Keep the config as resolved in the run's directory. Raises: StateError where it cannot be written."""
    write_whole(prepared.run_dir.config, to_yaml(prepared.config))


def set_later_aside(prepared: Prepared) -> tuple[str, ...]:
    """Withdraw the checkpoints after the one that the run goes on from, and say so. Raises: StateError."""
    step = prepared.checkpoint.step if prepared.checkpoint is not None else 0
    steps = set_aside(open_store(prepared.checkpoint_dir), after_step=step)
    if not steps:
        return ()
    return (f"the run goes back to step {step}; later checkpoints are set aside: {', '.join(map(str, steps))}",)
