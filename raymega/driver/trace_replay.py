"""A node trace replayed on a live run: what leaves is killed and withheld from the run, what comes is given back.

    30 -> 29 -> 25 -> 28 nodes       course_of: over the run's nodes, or the devices of its only one
      |                                 leaving   its workers send SIGKILL to themselves; it is counted no more
      v                                 coming    it is counted again, as one that has just come
    thread, in compressed time        the brain sees losses and returns as on a cluster that has them

The machines stay: only this run does without them. A controller that is replaced forgets the rest of the replay, and
has everything back.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from raymega.driver.node_watch import NodeWatch
from raymega.driver.threads import Failed, start_thread
from raymega.driver.worker_group import WorkerGroup
from raymega.plan.cluster import NodeId
from raymega.plan.plan import WorkerId
from raymega.sim.node_trace import NodeTrace
from raymega.sim.trace_course import Turnover, course_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A trace and how it is replayed. `least`: devices that the run keeps."""

    trace: NodeTrace
    speed: float
    least: int
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """A trace over the places of a run. `devices_of`: (node, devices) that each place stands for."""

    course: tuple[Turnover, ...]
    devices_of: Mapping[str, tuple[NodeId, int]]

    @property
    def lasts_s(self) -> float:
        return self.course[-1].at_s if self.course else 0.0

    def withheld(self, gone: Iterable[str]) -> dict[NodeId, int]:
        """Devices of each node that the run does without while these places are gone."""
        found = Counter[NodeId]()
        for place in gone:
            node, devices = self.devices_of[place]
            found[node] += devices
        return dict(found)


def laid_over(nodes: Mapping[NodeId, int], replay: Replay) -> Laid:
    """Lay a trace over a run's nodes, or over the devices of its only one.

    Args:
        nodes: devices of each.
    """
    if len(nodes) > 1:
        devices_of = {node: (node, devices) for node, devices in nodes.items()}
        least = -(-replay.least // max(1, min(nodes.values())))
    else:
        devices_of = {f"{node}#{n}": (node, 1) for node, devices in nodes.items() for n in range(devices)}
        least = replay.least
    course = course_of(replay.trace, places=tuple(devices_of), least=least, speed=replay.speed, seed=replay.seed)
    return Laid(course=course, devices_of=devices_of)


class Replayer:
    """Lets a laid trace happen, in a thread of its own, until it is over or closed."""

    def __init__(
        self, laid: Laid, *, withhold: Callable[[Mapping[NodeId, int]], None],
        workers_beyond: Callable[[Mapping[NodeId, int]], Iterable[WorkerId]], kill: Callable[[WorkerId], None],
        failed: Failed,
    ) -> None:  # fmt: skip
        self._laid, self._withhold, self._workers_beyond, self._kill = laid, withhold, workers_beyond, kill
        self._closed = threading.Event()
        self._thread = start_thread(self._go, name="trace-replay", failed=failed)

    def close(self) -> None:
        """Give everything back."""
        self._closed.set()
        self._thread.join()

    def _go(self) -> None:
        gone, passed_s = set[str](), 0.0
        for turnover in self._laid.course:
            if self._closed.wait(turnover.at_s - passed_s):
                break
            passed_s = turnover.at_s
            gone = (gone | set(turnover.leaving)) - set(turnover.coming)
            withheld = self._laid.withheld(gone)
            victims = tuple(self._workers_beyond(withheld))  # before they are withheld, which ends their seats
            for worker in victims:
                self._kill(worker)
            self._withhold(withheld)
        self._withhold({})


class Replays:
    """The replay of a run that is underway, if any: over the nodes that are watched, of the workers of a group."""

    def __init__(self, watch: NodeWatch, workers: WorkerGroup, *, failed: Failed) -> None:
        self._watch, self._workers, self._failed = watch, workers, failed
        self._underway: Replayer | None = None

    def begin(self, replay: Replay) -> Laid:
        """Let the nodes of a trace come and go; a replay that is underway ends."""
        laid = laid_over(self._watch.by_node, replay)
        self.close()
        self._underway = Replayer(
            laid, withhold=self._watch.withhold, workers_beyond=self._beyond,
            kill=lambda worker: self._workers.send(worker, "die"), failed=self._failed,
        )  # fmt: skip
        return laid

    def close(self) -> None:
        """End it, and give everything back."""
        if self._underway is not None:
            self._underway.close()

    def _beyond(self, withheld: Mapping[NodeId, int]) -> tuple[WorkerId, ...]:
        """Those whose device the run does without."""
        left = {node: devices - withheld.get(node, 0) for node, devices in self._watch.by_node.items()}
        return tuple(seat.worker for seat in self._workers.seats if seat.device >= left.get(seat.node, 0))
