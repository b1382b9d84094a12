"""Starts runs, and finds those that others have started.

    launch("nano")                     here, until its end; an interrupt stops it at its next step, saved
    launch("nano", background=True)    by a process of its own, which outlives this one; returns at once
    attach("quick-otter")              whoever has started it, alive or over

Launching is idempotent: a name that is alive with the same config is attached to, with another it is refused.
"""

import os
import secrets
import signal
import time
from contextlib import ExitStack
from typing import Any

from raymega.config.load import to_yaml
from raymega.config.schema import Config
from raymega.driver.background import spawn
from raymega.driver.cluster.ray_access import TOKEN_VARIABLE
from raymega.driver.cluster.ray_session import standing_ray
from raymega.driver.launch import keeper_name
from raymega.driver.preflight import resolved
from raymega.driver.records.lock import Owner, RunLock, read_owner
from raymega.driver.records.reading import Words, config_from, run_directory
from raymega.driver.records.run_dir import RunDirectory, write_whole
from raymega.driver.train import train
from raymega.errors import ConfigError
from raymega.notebook.run import Run

INTERRUPTED = 128 + signal.SIGINT  # the exit code of a run that an interrupt has stopped


def launch(
    config: Words | Run = "nano", *, background: bool = False, resume: int | str = "auto", **overrides: Any
) -> Run:
    """Train what `config` says; in the background it goes on without this process.

    Args:
        config: a preset, a file, a config, the sections of one; or a run that is over, or forked, to go on with it.
        overrides: sections laid over the config: `training={"steps": 50}, run={"name": "demo"}`.
        resume: auto (the newest whole checkpoint), none, or a step.

    Raises: ConfigError naming the owner where the name is alive with another config; any error of a config;
        KeyboardInterrupt once a run in the foreground is saved and over, where an interrupt has stopped it.
    """
    words = config.directory.read_config() if isinstance(config, Run) else config
    full, directory = resolved(config_from(words, overrides=overrides))
    owner = _owner_alive(directory)
    if owner is not None:
        return _attached(full, directory, owner)
    if not background:
        code = train(full, resume=resume, sample=True)
        print(f"run {full.run.name} ended with exit code {code}")
        if code == INTERRUPTED:  # the run is over and saved; what its cell or script had next is not wanted either
            raise KeyboardInterrupt
        return Run.at(directory)
    directory.create()
    try:
        lock = RunLock.acquire(directory.lock, controller=keeper_name(str(full.run.name)))
    except ConfigError:  # somebody was quicker
        owner = _owner_alive(directory)
        if owner is None:
            raise
        return _attached(full, directory, owner)
    return _in_background(full, directory, resume=str(resume), lock=lock)


def attach(name: str) -> Run:
    """The run of this name below ./runs, or in this directory. Raises: StateError if there is none."""
    return Run.at(run_directory(name))


def _owner_alive(directory: RunDirectory) -> Owner | None:
    owner = read_owner(directory.lock)
    return owner if owner is not None and not owner.is_over(time.time()) else None


def _attached(full: Config, directory: RunDirectory, owner: Owner) -> Run:
    _refuse_if_other(full, directory, owner)
    print(f"run {full.run.name} is alive with this config: attached to it, at step {Run.at(directory).committed}")
    return Run.at(directory)


def _refuse_if_other(full: Config, directory: RunDirectory, owner: Owner) -> None:
    """Raises: ConfigError naming the owner and what differs."""
    there = _config_there(directory, owner) or full
    if there == full:
        return
    old, new = there.model_dump(mode="json"), full.model_dump(mode="json")
    keys = [f"{name}.{key}" for name in old for key in old[name] if old[name][key] != new[name][key]]
    raise ConfigError(
        f"run {full.run.name} is alive with another config ({', '.join(keys[:5])}); its owner is {owner.controller} "
        f"(process {owner.pid} on {owner.host}). Attach to it, stop it, or choose another run.name."
    )


def _config_there(directory: RunDirectory, owner: Owner) -> Config | None:
    """Of the run that is alive there; None: it has not begun, and it is not known what it was launched with."""
    if owner.controller == keeper_name(directory.path.name):
        return directory.read_launched()
    return directory.read_config() if directory.is_begun() else None


def _in_background(full: Config, directory: RunDirectory, *, resume: str, lock: RunLock) -> Run:
    with ExitStack() as on_failure:
        on_failure.callback(lock.release)
        write_whole(directory.launched, to_yaml(full))
        if os.environ.get("RAY_AUTH_MODE", "token") == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault(TOKEN_VARIABLE, secrets.token_hex(32))  # one for all runs that are launched from here
        keeper = spawn(directory.launched, run=directory, resume=resume, env=_address(), lock=lock)
        on_failure.pop_all()
    print(f"run {full.run.name} starts in the background: {directory.path}")
    return Run(name=str(full.run.name), directory=directory, keeper=keeper)


def _address() -> dict[str, str]:
    """The Ray that this process is connected to, for the keeper; without one it sees for itself."""
    standing = standing_ray()
    return {"RAY_ADDRESS": standing.address} if standing is not None else {}
