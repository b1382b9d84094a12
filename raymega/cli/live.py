"""What the verbs do that speak with a run while it lives: find it, ask it, say what it answers.

demo: n1 will be gone in 30 s; dp=2 tp=1 pp=2 goes on as dp=1 tp=1 pp=2 after the next step
"""

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any

import ray

from raymega.cli.reading import run_directory
from raymega.config.chaos import parse
from raymega.control.commands import Answer
from raymega.driver.drain import node_named, this_node
from raymega.driver.json_lines import read_lines
from raymega.driver.live_run import LiveRun
from raymega.driver.lock import read_owner
from raymega.driver.ray_session import ray_of
from raymega.driver.run_dir import RunDirectory
from raymega.errors import ClusterError, ConfigError, StateError
from raymega.mesh import Mesh

AXES = {"dp": "data parallel", "tp": "tensor parallel", "pp": "pipeline"}


def drained(word: str, *, node: str | None, deadline_s: float) -> str:
    """Have a run leave a node, this one where none is named; what it answers. Raises: ClusterError if it refuses."""
    with live_run(word) as run:
        found = this_node() if node is None else node_named(node, rows=ray.nodes())
        answer, untold = run.drain(found, deadline_s=deadline_s, cause="raymega drain")
        agreed = f"{run.name}: {_accepted(answer, run=run.name)}"
        return f"{agreed}\nRay goes on placing work there: {untold}" if untold else agreed


def resized(word: str, *, devices: int | None, plan: str | None) -> str:
    """Have a run go on with another number of devices, or as another mesh. Raises: ClusterError if it refuses."""
    if (devices is None) == (plan is None):
        raise ConfigError("resize wants to know one thing: either --devices N or --plan dp=2,tp=2,pp=1.")
    mesh = None if plan is None else mesh_of(plan)
    with live_run(word) as run:
        return f"{run.name}: {_accepted(run.resize(devices=devices, mesh=mesh), run=run.name)}"


def disturbed(word: str, *, orders: tuple[str, ...]) -> str:
    """Have things go wrong in a run on purpose. Raises: ConfigError if it cannot carry all orders out."""
    for order in orders:
        parse(order)
    with live_run(word) as run:
        run.chaos(orders)
        return "\n".join(f"{run.name}: {parse(order)}" for order in orders)


def stopped(word: str, *, grace_s: float | None) -> tuple[str, int]:
    """End a run at its next boundary, saved; what it says, and its exit code. One that is over is left alone."""
    directory = _directory(word)
    over = None if directory is None else end_of(directory)
    if over is not None:
        return f"{_name(word, directory)}: it is over already: {over['reason']}", 0
    with live_run(word) as run:
        ended = run.stop(grace_s=grace_s)
    if ended is not None:
        return f"{run.name}: {ended.reason}", ended.exit_code
    told = None if directory is None else end_of(directory)
    if told is None:
        raise ClusterError(f"run {run.name} is gone and did not say how it ended. See `raymega status {word}`.")
    return f"{run.name}: {told['reason']}", int(told["exit_code"])


@contextmanager
def live_run(word: str) -> Iterator[LiveRun]:
    """The run that `word` names, for the time of the block.

    Raises: StateError for a name that is no run's; ConfigError for one that is over; ClusterError if it cannot be
        reached.
    """
    directory = _directory(word)
    name = _name(word, directory)
    if directory is not None:
        _refuse_if_over(name, directory)
    with ray_of(None if directory is None else directory.lock):
        yield LiveRun.find(name)


def mesh_of(word: str) -> Mesh:
    """Read `dp=2,tp=2,pp=1`; an axis that is not named has one rank. Raises: ConfigError naming what is wrong."""
    sizes: dict[str, int] = {}
    for part in word.split(","):
        axis, equals, size = part.strip().partition("=")
        if axis not in AXES:
            axes = ", ".join(f"{axis} ({name})" for axis, name in AXES.items())
            raise ConfigError(f"--plan: {part!r} names no axis. Axes are {axes}.")
        if not equals or not re.fullmatch(r"[1-9]\d*", size):
            raise ConfigError(f"--plan: {axis}={size} found; a number from 1 is wanted, as in dp=2,tp=2,pp=1.")
        sizes[axis] = int(size)
    return Mesh(dp=sizes.get("dp", 1), tp=sizes.get("tp", 1), pp=sizes.get("pp", 1))


def end_of(run: RunDirectory) -> dict[str, Any] | None:  # Any: JSON
    """How a run ended, if the last it wrote is that."""
    newest = deque(read_lines(run.events), maxlen=1)
    return newest[0] if newest and newest[0]["event"] == "RunEnded" else None


def _accepted(answer: Answer, *, run: str) -> str:
    if not answer.accepted:
        raise ClusterError(f"run {run} goes on as it is: {answer.reason}")
    return answer.reason


def _directory(word: str) -> RunDirectory | None:
    """The run's directory; None for a run that only its cluster knows by name."""
    try:
        return run_directory(word)
    except StateError:
        if "RAY_ADDRESS" not in os.environ:
            raise
        return None


def _name(word: str, directory: RunDirectory | None) -> str:
    return word if directory is None else directory.read_config().run.name or directory.path.name


def _refuse_if_over(name: str, directory: RunDirectory) -> None:
    owner = read_owner(directory.lock)
    if owner is None or owner.is_gone(time.time()):
        over = end_of(directory)
        why = f"it is over: {over['reason']}" if over is not None else "its controller is gone"
        again = f"To go on: raymega train {quote(str(directory.config))}"
        raise ConfigError(f"run {name} does not train: {why}. {again}")
