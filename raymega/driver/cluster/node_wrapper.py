"""A node that is left before it goes: `raymega node -- ray start --block ..` holds SIGTERM back from Ray.

    SIGTERM --> tell Ray: gone in `deadline_s` --> runs leave the node between two steps --> raylet leaves
                                                   or the deadline comes near              --> SIGTERM to Ray
    raymega drain --self                           the same from a hook, for a Ray that was started without it

A raylet is gone a tenth of a second after its own SIGTERM, and all that runs on its node with it; whoever sends SIGTERM
to a machine (Kubernetes, a cloud's agent, a batch system) takes it away some seconds later. A second SIGTERM, or a
Ctrl-C, ends Ray at once; with SIGTERM, since a SIGINT makes it say that it was aborted.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Literal

from raymega.driver.cluster.ray_private import Raylet, drain_node, raylet_below
from raymega.errors import ConfigError

Heard = Literal["terminate", "interrupt", "ended", "left", "refused"]
Ears = queue.SimpleQueue[Heard]  # may be put to from a signal handler
SIGNALS: dict[signal.Signals, Heard] = {signal.SIGTERM: "terminate", signal.SIGINT: "interrupt"}
RAY_OWN_WAIT = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}  # Ray 2.60 waits up to 30 s of its own on SIGTERM
ENDING_S = 2.0  # of the deadline, kept for Ray's own end
KILL_AFTER_S = 10.0
TERMINATED, INTERRUPTED = 143, 130
FIRST_PROCESS = 1  # of a machine, or of a container: all others are below it


def run_node(
    command: Sequence[str], *, deadline_s: float, raylet_of: Callable[[int], Raylet | None] = raylet_below,
    drain: Callable[..., str] = drain_node,
) -> int:  # fmt: skip
    """Run `command`, which starts Ray and stays, to its end.

    Args:
        deadline_s: seconds from SIGTERM until this machine is taken away.
        raylet_of: finds Ray's process below that of the command.
        drain: tells Ray; returns why it could not.
    Returns:
        The command's own exit code; after a SIGTERM 0 if the node was left in time, else 143; 130 after a Ctrl-C.
    Raises:
        ConfigError: the command cannot be run.
    """
    with _signals() as heard:
        try:
            child = subprocess.Popen(command, env={**os.environ, **RAY_OWN_WAIT}, start_new_session=True)
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be run: {error.strerror}.") from error
        _tell_end(child.wait, heard, "ended")
        first = heard.get()
        if first == "ended":
            return child.returncode
        if first == "interrupt":
            _end(child)
            return INTERRUPTED
        parting = _leave(raylet_of(child.pid), heard, drain=drain, deadline_s=deadline_s)
        _say(parting.reason if parting.is_left else f"{parting.reason}: Ray ends now")
        _end(child)
        return 0 if parting.is_left else TERMINATED


def leave_here(
    *, deadline_s: float, raylet_of: Callable[[int], Raylet | None] = raylet_below,
    drain: Callable[..., str] = drain_node,
) -> int:  # fmt: skip
    """Have the node of Ray on this machine left, and wait for that: what a preStop hook does before Ray's SIGTERM.

    Returns:
        0 once it is left; 143 where it is still in use and the deadline near, or Ray could not be told.
    """
    with _signals() as heard:
        parting = _leave(raylet_of(FIRST_PROCESS), heard, drain=drain, deadline_s=deadline_s, why="a hook")
        _say(parting.reason if parting.is_left else f"{parting.reason}: nothing more is waited for, Ray stays as it is")
        return 0 if parting.is_left else TERMINATED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parting:
    """Whether the node is left, and how that was seen, or why it is waited for no longer."""

    is_left: bool
    reason: str


def _leave(
    raylet: Raylet | None, heard: Ears, *, drain: Callable[..., str], deadline_s: float, why: str = "SIGTERM"
) -> _Parting:
    """Have the node left, until that is so, the deadline comes near, or someone does not want to wait."""
    began = time.monotonic()
    if raylet is None:
        return _Parting(is_left=False, reason="no raylet runs here, nothing is to be left")
    _say(f"{why}: node {raylet.node} is to be left within {deadline_s:.0f} s")
    answers: list[str] = []
    tell = partial(drain, raylet.node, gcs_address=raylet.gcs_address, by_t=time.time() + deadline_s, reason=why)
    threading.Thread(target=lambda: heard.put(_told(raylet, tell, answers)), name="left", daemon=True).start()
    try:
        said = heard.get(timeout=max(0.0, began + deadline_s - ENDING_S - time.monotonic()))
    except queue.Empty:
        how = "the node is in use" if answers else f"Ray at {raylet.gcs_address} does not answer"
        return _Parting(is_left=False, reason=f"{how} and the deadline is near")
    if said == "refused":
        return _Parting(is_left=False, reason=answers[0])
    if said in ("left", "ended"):
        return _Parting(is_left=True, reason=f"the node is left after {time.monotonic() - began:.1f} s")
    return _Parting(is_left=False, reason="told a second time")


def _told(raylet: Raylet, tell: Callable[[], str], answers: list[str]) -> Heard:
    """Tell Ray, keep its answer, and wait for what comes of it. A Ray that is gone holds this up for 40 s."""
    answers.append(tell())
    if answers[0]:
        return "refused"
    raylet.wait()
    return "left"


def _say(text: str) -> None:
    print(f"raymega node: {text}", file=sys.stderr, flush=True)


@contextmanager
def _signals() -> Iterator[Ears]:
    """What this process is told by signals, for the time of the block."""
    heard = Ears()

    def hear(number: int, frame: FrameType | None) -> None:
        heard.put(SIGNALS[signal.Signals(number)])

    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_end(wait: Callable[[], object], heard: Ears, what: Heard) -> None:
    """Say `what` as soon as `wait` returns."""

    def wait_and_tell() -> None:
        wait()
        heard.put(what)

    threading.Thread(target=wait_and_tell, name=what, daemon=True).start()


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the command and all it has started."""
    child.terminate()
    try:
        child.wait(timeout=KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
