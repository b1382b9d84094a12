"""What raymega needs of Ray and Ray does not promise: all of it is here, and each has a way round.

draining_nodes     Ray tells of a drain notice only through a private call, measured with Ray 2.60 (0.3 ms a poll);
                   with a Ray that lacks it the answer is "none", and a drained node is noticed when it is gone
drain_node         the call behind the hidden `ray drain-node` (3 ms); with a Ray that lacks it a run can still be told,
                   by `raymega drain RUN NODE`
HOUSEKEEPING       names of processes; one that is not known looks like work, and its node is left at the deadline
raylet_below       a raylet's own arguments say which node it is; one that does not say so ends at its SIGTERM
apply_auth         Ray reads RAY_AUTH_MODE when it is imported, and RAY_AUTH_TOKEN once; one that cannot read them again
                   must find them set, and a process of it speaks with clusters of one token
session_name       an older Ray (2.50) does not say which one it is; it is told from others by its address alone then
daemons_apart      Ray starts its daemons in the process group of who calls it; a Ray that starts them by another name
                   leaves them there, and a signal to the group of `raymega train` ends them before the run is saved
signals_left_alone Ray answers SIGTERM itself once it has connected, or says that it cannot in a thread; where it does
                   so by another name it ends the process at once, whatever that would have done
ended_daemons      Ray knows the processes that it has started; the end of one that does not tell is found out after a
                   minute
"""

import importlib
import logging
import os
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.exceptions import RayError

Poll = Callable[[], dict[str, int]]
PREEMPTION = 2  # DRAIN_NODE_REASON_PREEMPTION of autoscaler.proto, which a node cannot refuse
DRAIN_LIMIT_S = 5.0
HOUSEKEEPING = (  # what a raylet's processes call themselves that do nothing for anybody (Ray 2.60, `ray_constants`)
    "ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray::SPILL", "ray::RESTORE", "ray::DELETE",
)  # fmt: skip
DAEMONS = ("gcs_server", "raylet")  # without which there is no Ray (Ray 2.60, `ray_constants.PROCESS_TYPE_*`)
HEAD_RESOURCE = "node:__internal_head__"


@cache
def _poll() -> Poll | None:
    state = importlib.import_module("ray._private.state").state
    poll: Poll | None = getattr(state, "get_draining_nodes", None)
    return poll


def can_see_drains() -> bool:
    """Whether this Ray tells of drain notices before a node is gone."""
    return _poll() is not None


def draining_nodes() -> dict[str, float]:
    """Nodes under a drain notice -> the deadline in Unix seconds (0: none was given)."""
    poll = _poll()
    return {node: deadline_ms / 1000 for node, deadline_ms in poll().items()} if poll is not None else {}


@cache
def can_drain() -> bool:
    """Whether this Ray can be told that a node is to go."""
    raylet = importlib.import_module("ray._raylet")
    return getattr(getattr(raylet, "InnerGcsClient", None), "drain_node", None) is not None


def drain_node(node: str, *, gcs_address: str, by_t: float, reason: str) -> str:
    """Tell Ray that `node` is gone at `by_t`: nothing new is placed there, and all who ask hear of it.

    Ray ends nothing at the deadline; a node on which nothing runs any more leaves at once.

    Returns:
        Why Ray does not take the notice; empty when it does.
    """
    if not can_drain():
        return "this Ray cannot be told"
    deadline_ms = int(by_t * 1000)
    try:
        client = importlib.import_module("ray._raylet").GcsClient(address=gcs_address)
        taken, why = client.drain_node(node, PREEMPTION, reason, deadline_ms, timeout=DRAIN_LIMIT_S)
    except (RayError, TypeError) as error:  # TypeError: a Ray whose call takes other arguments
        return f"Ray did not take it: {error}"
    return "" if taken else f"Ray refused it: {why}"


def is_head(resources: Iterable[str]) -> bool:
    """Whether a node with these resources is the one that the cluster lives by."""
    return HEAD_RESOURCE in resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Raylet:
    """Ray's process on a node, and where its cluster answers."""

    process: psutil.Process
    node: str
    gcs_address: str

    def wait(self) -> None:
        """Block until it has ended, whether or not anybody has collected it."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.process.pid)
            select.select([handle], [], [])
            os.close(handle)


def raylet_below(pid: int) -> Raylet | None:
    """The raylet among all that process `pid` has started; None if there is none, or it does not say what it is.

    One in another network is none of this machine's: its cluster's address means something else here.
    """
    here = _network_of("self")
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return None
    for process in below:
        try:
            words = process.cmdline()
        except psutil.Error:  # it ended meanwhile
            continue
        facts = dict(word.lstrip("-").split("=", 1) for word in words[1:] if word.startswith("--") and "=" in word)
        is_one = words and Path(words[0]).name == "raylet" and {"node_id", "gcs-address"} <= facts.keys()
        if is_one and _network_of(str(process.pid)) in (here, ""):
            return Raylet(process=process, node=facts["node_id"], gcs_address=facts["gcs-address"])
    return None


def _network_of(pid: str) -> str:
    """Which network a process is in; empty for one that has ended, or is another user's."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def apply_auth() -> None:
    """Let this process's Ray take RAY_AUTH_MODE and RAY_AUTH_TOKEN as they stand in the environment now."""
    raylet = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    tokens = getattr(raylet, "AuthenticationTokenLoader", None)
    if tokens is not None:
        tokens.instance().reset_cache()


def session_name() -> str:
    """What tells the Ray of this process from any other that is or was; empty if it does not say."""
    tell: Callable[[], str] | None = getattr(ray.get_runtime_context(), "get_session_name", None)
    return tell() if tell is not None else ""


@contextmanager
def daemons_apart() -> Iterator[None]:
    """What Ray starts in the block has a process group of its own, which all that it starts in turn is in.

    A terminal's Ctrl-C and hang-up, and the SIGTERM of a batch system or of `timeout`, go to a whole group.
    """
    services: Any = importlib.import_module("ray._private.services")  # Any: what may lack that name
    start = getattr(services, "ConsolePopen", None)
    if start is None:
        yield
        return
    services.ConsolePopen = partial(start, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = start


@contextmanager
def signals_left_alone() -> Iterator[None]:
    """Ray answers no SIGTERM for this process where it connects in the block: the process has an answer of its own."""
    utils: Any = importlib.import_module("ray._private.utils")  # Any: what may lack that name
    install, log = getattr(utils, "set_sigterm_handler", None), logging.getLogger("ray._private.worker")
    utils.set_sigterm_handler = lambda handler: None
    log.addFilter(_is_not_of_signals)
    try:
        yield
    finally:
        log.removeFilter(_is_not_of_signals)
        utils.set_sigterm_handler = install


def _is_not_of_signals(record: logging.LogRecord) -> bool:
    return "SIGTERM handler is not set" not in record.getMessage()


def ended_daemons() -> tuple[str, ...]:
    """Which of the daemons that this process has started have ended by themselves; none of a cluster of others."""
    node = getattr(importlib.import_module("ray._private.worker"), "_global_node", None)
    dead = getattr(node, "dead_processes", tuple)
    return tuple(sorted(kind for kind, _ in dead() if kind in DAEMONS))
