"""Finds a live run by the word that a person has for it: a name below ./runs, a directory, or a name on RAY_ADDRESS.

word --> directory --> is it over? --> the Ray in which it lives --> its controller
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from shlex import quote
from typing import Any

from raymega.driver.cluster.ray_of_run import ray_of
from raymega.driver.launch import controller_name
from raymega.driver.live_run import LiveRun
from raymega.driver.records.json_lines import newest_line
from raymega.driver.records.line_shapes import EVENT_LINE
from raymega.driver.records.lock import read_owner
from raymega.driver.records.reading import run_directory
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ClusterError, ConfigError, StateError


@contextmanager
def live_run(word: str) -> Iterator[LiveRun]:
    """The run that `word` names, for the time of the block.

    Raises: StateError for a name that is no run's; ConfigError for one that is over; ClusterError if it cannot be
        reached, or not yet.
    """
    directory = directory_named(word)
    name = name_of(word, directory)
    if directory is not None:
        refuse_if_over(name, directory)
        _refuse_if_starting(name, directory)
    with reach(name, directory) as run:
        yield run


@contextmanager
def reach(name: str, directory: RunDirectory | None) -> Iterator[LiveRun]:
    """The run in the Ray in which it lives. Raises: ConfigError if it has just ended; ClusterError; RayGone."""
    with ExitStack() as connected:
        try:
            connected.enter_context(ray_of(None if directory is None else directory.lock))
            run = LiveRun.find(name)
        except (ClusterError, ConfigError):
            if directory is not None:
                refuse_if_over(name, directory)  # which tells how it ended
            raise
        yield run


def end_of(run: RunDirectory) -> dict[str, Any] | None:  # Any: JSON
    """How a run ended, if the last it wrote is that."""
    newest = newest_line(run.events, shape=EVENT_LINE)
    return newest if newest is not None and newest["event"] == "RunEnded" else None


def directory_named(word: str) -> RunDirectory | None:
    """The run's directory; None for a run that only its cluster knows by name."""
    try:
        return run_directory(word)
    except StateError:
        if "RAY_ADDRESS" not in os.environ:
            raise
        return None


def name_of(word: str, directory: RunDirectory | None) -> str:
    """The run's own name."""
    if directory is None:
        return word
    return directory.read_config().run.name or directory.path.name if directory.is_begun() else directory.path.name


def _refuse_if_starting(name: str, directory: RunDirectory) -> None:
    """Refuse a run that whoever launches it has not given to a controller yet. Raises: ClusterError."""
    owner = read_owner(directory.lock)
    if owner is not None and owner.controller != controller_name(name):
        raise ClusterError(
            f"run {name} is only just starting: it has no controller yet, its lock is held by {owner.controller} "
            f"(process {owner.pid} on {owner.host}). Ask again once `raymega status` shows its first step."
        )


def refuse_if_over(name: str, directory: RunDirectory) -> None:
    """Refuse a run that nobody leads any more. Raises: ConfigError with how it ended, and how it goes on."""
    owner = read_owner(directory.lock)
    if owner is None or owner.is_over(time.time()):
        over = end_of(directory)
        why = f"it is over: {over['reason']}" if over is not None else "its controller is gone"
        done = 0 if over is None else over["step"]
        more = f" --set training.steps={2 * done}" if done >= directory.read_config().training.steps else ""
        again = f"To go on: raymega train {quote(str(directory.config))}{more}"
        raise ConfigError(f"run {name} does not train: {why}. {again}")
