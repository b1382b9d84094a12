"""A run that is submitted again while its controller still saves: what is there is waited for, and then gone on with.

    job 1 -- SIGTERM --> hands over, is gone     controller: saves .. ends, LOCK goes
    job 2                    waits here ............................................ resumes

A run that trains on is not waited for: it is refused, with its owner's name, as any other would be.
"""

import time
from pathlib import Path

from raymega.config.schema import Config
from raymega.driver.cluster.ray_of_run import ray_of
from raymega.driver.launch import controller_name
from raymega.driver.live_run import LiveRun
from raymega.driver.records.lock import Owner, read_owner
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError, RayGone

LOOK_S, ASK_S = 0.2, 5.0


def wait_for_the_run_before(config: Config) -> None:
    """Wait until a controller that is to end a run of this name has done so, at most as long as a save may take."""
    if config.run.name is None:
        return
    directory = RunDirectory(path=Path(config.run.dir) / config.run.name)
    owner = _owner_of(directory)
    if owner is None or owner.controller != controller_name(config.run.name) or not _is_ending(directory):
        return
    print(f"{owner.controller} still saves and ends the run before; waiting for that", flush=True)
    until = time.monotonic() + config.checkpoint.timeout_s
    while _is_held(directory, for_s=ASK_S) and _is_ending(directory) and time.monotonic() < until:
        pass


def _is_held(directory: RunDirectory, *, for_s: float) -> bool:
    """Whether somebody has the directory all that time; returns as soon as nobody has."""
    until = time.monotonic() + for_s
    while _owner_of(directory) is not None:
        if time.monotonic() > until:
            return True
        time.sleep(LOOK_S)
    return False


def _owner_of(directory: RunDirectory) -> Owner | None:
    owner = read_owner(directory.lock)
    return owner if owner is not None and not owner.is_over(time.time()) else None


def _is_ending(directory: RunDirectory) -> bool:
    """Whether the controller is to end the run, or is gone without a word, and the lock lapses."""
    try:
        with ray_of(directory.lock):
            return LiveRun.find(directory.path.name).is_ending()
    except (ConfigError, RayGone):
        return True
