"""The nodes and processes of a simulated cluster: who is there, who is up.

nodes   n0: 2 devices   n1: 2 devices        seats   w0 n0   w1 n0   w2 n1        born   w0 w1
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from raymega.control.events import NodesChanged, WorkerBorn
from raymega.control.states import NodeDevices, Seat
from raymega.plan.plan import WorkerId


@dataclass(slots=True, kw_only=True)
class SimNodes:
    """See above. `devices`: of each node that is there; `ordered_s`: when processes were."""

    devices: dict[str, int] = field(default_factory=dict)
    seats: dict[WorkerId, Seat] = field(default_factory=dict)
    born: set[WorkerId] = field(default_factory=set)
    ordered_s: dict[WorkerId, float] = field(default_factory=dict)

    def come(self, nodes: Mapping[str, int]) -> None:
        """These nodes are there from now on."""
        self.devices |= nodes

    def go(self, names: Collection[str]) -> tuple[Seat, ...]:
        """These nodes are gone, and so are the processes on them, which are given back."""
        for name in names:
            del self.devices[name]
        gone = tuple(seat for seat in self.seats.values() if seat.node in names)
        self.end(seat.worker for seat in gone)
        return gone

    def start(self, seat: Seat, *, at_s: float) -> bool:
        """Start a process; False where its node is gone already."""
        self.seats[seat.worker] = seat
        self.ordered_s[seat.worker] = at_s
        return seat.node in self.devices

    def up_s(self, workers: Iterable[WorkerId], *, start_s: float) -> float:
        """When the last of them is up that is not yet; 0 where all are."""
        return max((self.ordered_s[worker] + start_s for worker in workers if worker not in self.born), default=0.0)

    def end(self, workers: Iterable[WorkerId]) -> None:
        """These processes are gone."""
        for worker in workers:
            self.seats.pop(worker, None)

    def bear(self, workers: Iterable[WorkerId]) -> WorkerBorn | None:
        """The processes are up that are still there."""
        born = [worker for worker in workers if worker in self.seats]
        self.born |= set(born)
        return WorkerBorn(worker=born[0], also=tuple(born[1:])) if born else None

    def told(self) -> NodesChanged:
        """What the cluster says of itself."""
        return NodesChanged(nodes=tuple(NodeDevices(node=name, devices=many) for name, many in self.devices.items()))
