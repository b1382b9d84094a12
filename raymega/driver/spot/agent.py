"""The agent of a run on one node: an actor without CPUs that hears notices, and tells Ray that the node goes.

    notice --> Ray's drain, with the deadline --> every run reads it in Ray's table, and leaves
                                              --> the node is left: tell the cloud, and go, so that the raylet may

An agent belongs to the controller that has started it and goes with it. It goes from a node that somebody else has
had drained as well: a raylet stays as long as anything runs on it.
"""

import os
import threading
import time
from collections.abc import Callable
from math import inf

import psutil
import ray

from raymega.driver.cluster.ray_private import HOUSEKEEPING, drain_node, draining_nodes
from raymega.driver.process.threads import start_thread
from raymega.driver.spot.choosing import sources_of, vendor_here
from raymega.driver.spot.notice import Notice
from raymega.driver.spot.sources import Source
from raymega.driver.spot.watching import SpotWatch

LOOK_S = 0.2
DRAIN_LOOK_S = 1.0
OWN = "ray::SpotAgent"


class SpotAgent:
    """Watches over the node that it is started on."""

    def __init__(self, notices: str) -> None:
        context = ray.get_runtime_context()
        self._node, self._gcs_address = context.get_node_id(), context.gcs_address
        sources = sources_of(notices, env=os.environ, vendor=vendor_here())
        self._names = tuple(source.name for source in sources)
        self._told: list[tuple[Source, Notice]] = []
        self._telling = threading.Lock()
        self._watch = SpotWatch(sources, leave=self._have_left, failed=_end)
        start_thread(self._go_along, name="go-along", failed=_end)

    def asks(self) -> tuple[str, ...]:
        """The names of its sources."""
        return self._names

    def _have_left(self, source: Source, notice: Notice) -> str:
        with self._telling:
            refused = drain_node(self._node, gcs_address=self._gcs_address, by_t=notice.by_t, reason=notice.cause)
            if not refused:
                self._told.append((source, notice))
        return refused

    def _go_along(self) -> None:
        """Once the node is drained, by whomever, and left, let the cloud know and go."""
        while not self._told and self._node not in draining_nodes():
            time.sleep(DRAIN_LOOK_S)
        by_t = self._told[0][1].by_t if self._told else draining_nodes().get(self._node, 0.0) or inf
        raylet = psutil.Process(os.getppid())
        wait_until(lambda: not is_used(names_of(raylet.children())), by_t=by_t)
        with self._telling:
            told = tuple(self._told)
        for source, notice in told:
            if notice.ack and time.time() < notice.by_t:  # after the deadline it need not be told
                source.acknowledge(notice)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
        os._exit(0)


def is_used(processes: tuple[str, ...]) -> bool:
    """Whether one of a raylet's processes does something for somebody; an agent of another run does not count."""
    return any(name.startswith("ray::") and not name.startswith((*HOUSEKEEPING, OWN)) for name in processes)


def names_of(processes: list[psutil.Process]) -> tuple[str, ...]:
    """What each calls itself; one that has ended meanwhile is left out."""
    found = []
    for process in processes:
        try:
            found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return tuple(found)


def wait_until(holds: Callable[[], bool], *, by_t: float) -> None:
    """Return as soon as `holds`, or at `by_t`."""
    while not holds() and time.time() < by_t:
        time.sleep(LOOK_S)


def _end(error: BaseException) -> None:
    """A watch that is broken is none: be gone, so that Ray starts another."""
    print(f"the watch for notices broke: {type(error).__name__}: {error}", flush=True)
    os._exit(1)


RESTARTS = 3
RemoteSpotAgent = ray.remote(num_cpus=0, max_concurrency=2, max_restarts=RESTARTS)(SpotAgent)
