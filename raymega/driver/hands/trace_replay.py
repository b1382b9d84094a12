"""A node trace replayed on a live run: what leaves is killed and withheld from the run, what comes is given back.

    30 -> 29 -> 25 -> 28 nodes       course_of: over the run's nodes, or the devices of its only one
      |                                 leaving   its workers send SIGKILL to themselves; it is counted no more
      v                                 coming    it is counted again, as one that has just come
    thread, in compressed time        the brain sees losses and returns as on a cluster that has them
      |
      `--> DisturbAsked(without) --> brain --> Disturb --> Replays.do_without      so it stands in the journal

The machines stay: only this run does without them. A controller that is replaced forgets the rest of the replay, and
has everything back.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from raymega.control.commands import Answer
from raymega.control.events import DisturbAsked
from raymega.driver.cluster.node_watch import NodeWatch
from raymega.driver.hands.chaos import ChaosHands
from raymega.driver.hands.worker_group import WorkerGroup
from raymega.driver.process.threads import Failed, start_thread
from raymega.errors import ConfigError
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
    """Lets a laid trace happen, in a thread of its own, until it is over or closed, or the run is.

    Args:
        do_without: asks for what the run is to do without from now on; whether it does.
    """

    def __init__(self, laid: Laid, *, do_without: Callable[[Mapping[NodeId, int]], bool], failed: Failed) -> None:
        self._laid, self._do_without = laid, do_without
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
            if not self._do_without(self._laid.withheld(gone)):
                return
        if gone:
            self._do_without({})


class Replays:
    """The replay of a run that is underway, if any: over the nodes that are watched, of the workers of a group.

    Args:
        chaos: knows the numbers of nodes, by which they are asked for and written down.
    """

    def __init__(
        self, watch: NodeWatch, workers: WorkerGroup, *, ask: Callable[[DisturbAsked], Future[Answer]],
        chaos: ChaosHands, failed: Failed,
    ) -> None:  # fmt: skip
        self._watch, self._workers, self._ask, self._number_of = watch, workers, ask, chaos.number_of
        self._failed = failed
        self._underway: Replayer | None = None

    def begin(self, replay: Replay) -> Laid:
        """Let the nodes of a trace come and go; a replay that is underway ends."""
        laid = laid_over(self._watch.by_node, replay)
        self.close()
        self._underway = Replayer(laid, do_without=self._asked, failed=self._failed)
        return laid

    def close(self) -> None:
        """End it, and give everything back."""
        if self._underway is not None:
            self._underway.close()

    def check(self, nodes: Iterable[int]) -> None:
        """Refuse a node that is not there. Raises: ConfigError naming those that are."""
        there = sorted(self._nodes)
        for number in nodes:
            if number not in there:
                raise ConfigError(f"without: the run has no node {number}. Its nodes are {', '.join(map(str, there))}.")

    def do_without(self, devices: Mapping[int, int]) -> None:
        """Have the run do without the last devices of nodes, by number, and end whoever sits there."""
        nodes = self._nodes
        withheld = {nodes[number]: count for number, count in devices.items() if number in nodes}
        for worker in tuple(self._beyond(withheld)):  # before they are withheld, which ends their seats
            self._workers.send(worker, "die")
        self._watch.withhold(withheld)

    @property
    def _nodes(self) -> dict[int, NodeId]:
        return {self._number_of(node): node for node in sorted(self._watch.by_node)}

    def _asked(self, withheld: Mapping[NodeId, int]) -> bool:
        numbered = sorted((self._number_of(node), devices) for node, devices in withheld.items())
        return self._ask(DisturbAsked(request=0, without=tuple(numbered))).result().accepted

    def _beyond(self, withheld: Mapping[NodeId, int]) -> tuple[WorkerId, ...]:
        """Those whose device the run does without."""
        left = {node: devices - withheld.get(node, 0) for node, devices in self._watch.by_node.items()}
        return tuple(seat.worker for seat in self._workers.seats if seat.device >= left.get(seat.node, 0))
