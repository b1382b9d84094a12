"""`raymega fork`: a new run that begins with the state of another, and may go on with another config.

    runs/demo   step 100   120   140 ..                         goes on, or is over: it is only read
                            |
    runs/hot                +--> config.yaml (training.lr: 1e-4), checkpoints/step-120, metrics of steps 1 .. 120

All of the state comes along: optimizer, position in the data, counters; so seed, batch, data and what the
model computes stay, and what is left as it was trains on to the same bits. A run that wants only parameters has
`run.init_from`.

The config is written last: until it is there, the directory is no run's.
"""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from raymega.checkpoint.copying import copy_checkpoint
from raymega.checkpoint.find import Found, at_step, newest_complete, published_steps
from raymega.checkpoint.store import join_uri, open_store
from raymega.config.load import load, to_yaml
from raymega.config.schema import Config
from raymega.data.open_data import open_data
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.going_on import kept_of, needs_of, refuse_unlike
from raymega.driver.paths import with_absolute_paths
from raymega.driver.records.events_sink import FORKED
from raymega.driver.records.reading import resume_of
from raymega.driver.records.run_dir import RunDirectory, cannot_write, write_whole
from raymega.driver.records.steps import all_steps
from raymega.errors import ConfigError, StateError
from raymega.layout.checkpoint_layout import directory_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A run that has not begun. `steps`: that it is to have."""

    run: RunDirectory
    of: str
    step: int
    steps: int

    def __str__(self) -> str:
        more = "" if self.step < self.steps else f" --set training.steps={2 * self.step}"
        return (
            f"{self.run.path.name}: forked from {self.of} after step {self.step} of {self.steps}, in {self.run.path}\n"
            f"to go on: raymega train {quote(str(self.run.config))}{more}"
        )


def fork_run(source: RunDirectory, *, name: str, step: str = "auto", overrides: tuple[str, ...] = ()) -> Forked:
    """Lay down a run `name` beside `source` that goes on from its checkpoint of `step`.

    Args:
        step: auto: its newest whole one.
        overrides: `a.b=c`, laid over its config.
    Raises: StateError if there is no such checkpoint, or it fits the config no more; ConfigError for a config that is
        faulty, or changes what may not, or a name that is taken.
    """
    old = source.read_config()
    mine = (f"run.name={json.dumps(name)}", f"run.dir={json.dumps(str(source.path.parent))}", "checkpoint.path=null")
    config = with_absolute_paths(load(to_yaml(old), source=str(source.config), overrides=(*mine, *overrides)))
    found = _found(old, source, step=step)
    tokenizer = load_tokenizer(config.data.tokenizer).fingerprint
    refuse_unlike(found.manifest, config=config, tokenizer=tokenizer, kept=_kept(config, old=old))
    run = RunDirectory(path=Path(config.run.dir) / str(config.run.name))
    checkpoints = config.checkpoint.path or str(run.checkpoints)
    if config.checkpoint.path is not None and published_steps(open_store(checkpoints)):
        raise ConfigError(f"checkpoint.path: {checkpoints} holds checkpoints of another run. Name another place.")
    try:
        run.path.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(f"run.name: there is something in {run.path} already. Choose another name.") from error
    except OSError as error:
        raise cannot_write(run.path, error) from error
    forked = Forked(run=run, of=source.path.name, step=found.manifest.step, steps=config.training.steps)
    try:
        _fill(forked, source=source, found=found, config=config, checkpoints=checkpoints)
    except BaseException:
        shutil.rmtree(run.path)
        raise
    return forked


def _kept(config: Config, *, old: Config) -> dict[str, Any]:  # Any: JSON
    """What the fork would keep; the data is opened only where it is named otherwise."""
    if config.data.train == old.data.train or config.run.seed is None:
        return kept_of(config, sources=None)
    data = open_data(config.data, seed=config.run.seed, vocab_size=config.model.vocab_size)
    return kept_of(config, sources=data.sources)


def _found(config: Config, source: RunDirectory, *, step: str) -> Found:
    start, uri, needs = (
        resume_of(step, option="step"),
        config.checkpoint.path or str(source.checkpoints),
        needs_of(config),
    )
    found = at_step(uri, step=start, needs=needs) if isinstance(start, int) else newest_complete(uri, needs=needs)
    if found is None:
        raise StateError(f"{uri} has no checkpoint yet, which a fork could begin with. Wait for one.")
    return found


def _fill(forked: Forked, *, source: RunDirectory, found: Found, config: Config, checkpoints: str) -> None:
    run = forked.run
    run.create()
    target = open_store(join_uri(checkpoints, directory_of(forked.step)))
    try:
        copy_checkpoint(open_store(found.uri), target)
    except OSError as error:
        raise StateError(f"{target.place} cannot be written: {error}. Make room, or give access.") from error
    write_whole(run.metrics, _text(line for line in all_steps(source.metrics) if line["step"] <= forked.step))
    write_whole(run.events, _text([_begins(forked, changed=_changed(source.read_config(), config))]))
    write_whole(run.config, to_yaml(config))


def _begins(forked: Forked, *, changed: str) -> dict[str, Any]:  # Any: JSON
    reason = f"forked from run {forked.of} after step {forked.step}: {changed or 'as it was'}"
    return {
        "t": time.time(), "seq": 1, "generation": 0, "step": forked.step, "event": FORKED, "state": FORKED,
        "commands": [], "reason": reason,
    }  # fmt: skip


def _changed(old: Config, new: Config) -> str:
    """What the config says otherwise, but for what names the run."""
    before, after = (one.model_dump(mode="json", exclude={"run": {"name", "dir"}}) for one in (old, new))
    return ", ".join(
        f"{section}.{key} {before[section][key]} -> {value}"
        for section, values in after.items()
        for key, value in values.items()
        if before[section][key] != value
    )


def _text(lines: Any) -> str:  # Any: JSON
    return "".join(json.dumps(line) + "\n" for line in lines)
