"""Ray's table of nodes as events: which nodes are alive, how many devices of each the run may use, which are to go.

The table is read every half second (0.3-0.5 ms each time); an event is told when what it says has changed. Devices
are counted from what nodes have, not from what is free at the moment: the run's own workers and data tasks come and go.
A node under a drain notice is alive, and counted, until it is gone.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import ray

from raymega.config.schema import Config
from raymega.control.events import DrainAsked, NodesChanged
from raymega.control.states import NodeDevices
from raymega.driver.cluster.ray_private import draining_nodes
from raymega.driver.process.threads import Failed, start_thread
from raymega.plan.cluster import Cluster, Node, NodeId, devices_in
from raymega.plan.hardware import CPU_CORE, DEVICES
from raymega.plan.hardware import Device as Hardware
from raymega.plan.placement import DOMAIN_LABELS

POLL_S = 0.5
WITHOUT_DEADLINE_S = 24 * 3600.0  # of a notice that names none
LOOPBACK = "127.0.0.1"
KIND = "accelerator_type:"  # a resource of Ray's
BY_KIND = {
    "A10G": "a10g", "L4": "l4", "L40S": "l40s", "A100-40G": "a100-40g", "A100-80G": "a100-80g", "H100": "h100-80g",
    "H200": "h200",
}  # fmt: skip
Row = Mapping[str, Any]  # Any: a row of ray.nodes()
Device = Literal["cpu", "cuda"]
Taken = tuple[Mapping[NodeId, int], Mapping[NodeId, int]]
"""Devices by node: of other runs, of this one."""


def device_of(config: Config, rows: Iterable[Row]) -> Device:
    """What `run.device` comes to on this cluster; auto: cuda where every node has it."""
    if config.run.device != "auto":
        return config.run.device
    alive = [row for row in rows if row["Alive"]]
    return "cuda" if alive and all(row["Resources"].get("GPU", 0) >= 1 for row in alive) else "cpu"


def cluster_of(rows: Iterable[Row], *, device: Device, cpus_per_worker: int) -> Cluster:
    """The living nodes, the one with most devices first."""
    nodes = [
        Node(
            id=row["NodeID"],
            devices=devices_in(row["Resources"], device=device, cpus_per_worker=cpus_per_worker),
            stock=", ".join(f"{row['Resources'].get(unit, 0):g} {unit}" for unit in ("CPU", "GPU")),
            labels=row.get("Labels", {}),
            device=_hardware(row) if device == "cuda" else CPU_CORE,
        )
        for row in rows
        if row["Alive"]
    ]
    return Cluster(nodes=tuple(sorted(nodes, key=lambda node: (-node.devices, node.id))))


def _hardware(row: Row) -> Hardware:
    """What Ray says that a node's GPUs are; nothing is known of kinds that come with several sizes of memory."""
    kinds = (name.removeprefix(KIND) for name in row["Resources"] if name.startswith(KIND))
    return next((DEVICES[BY_KIND[kind]] for kind in kinds if kind in BY_KIND), CPU_CORE)


def devices_of(config: Config, *, device: Device) -> int:
    """Devices of all living nodes, whoever has them."""
    cluster = cluster_of(ray.nodes(), device=device, cpus_per_worker=config.run.cpus_per_worker)
    return sum(node.devices for node in cluster.nodes)


def domains_of(node: Node) -> tuple[tuple[str, str], ...]:
    """The labels that say what a node may fail together with."""
    return tuple((label, node.labels[label]) for label in DOMAIN_LABELS if label in node.labels)


def addresses_of(rows: Iterable[Row]) -> dict[NodeId, str]:
    """The address of each living node that its peers can reach: the loopback where all are on this host."""
    alive = [row for row in rows if row["Alive"]]
    if {row["NodeManagerHostname"] for row in alive} == {socket.gethostname()}:
        return {row["NodeID"]: LOOPBACK for row in alive}
    return {row["NodeID"]: row["NodeManagerAddress"] for row in alive}


def notices(draining: Mapping[NodeId, float], *, seen: Mapping[NodeId, float], now: float) -> tuple[DrainAsked, ...]:
    """What the cluster says of nodes that are to go, where it has not said so before.

    Args:
        draining, seen: node -> when it will be gone, in Unix seconds; 0: nobody said when.
    """
    return tuple(
        DrainAsked(request=None, node=node, by_t=by_t or now + WITHOUT_DEADLINE_S, cause="a notice of the cluster")
        for node, by_t in draining.items()
        if seen.get(node) != by_t
    )


def usable(cluster: Cluster, *, taken: Taken, least: int) -> tuple[NodeDevices, ...]:
    """The nodes with devices for this run: what other runs have is not for it.

    Args:
        least: a run that has none yet waits until others have left it so many.
    """
    others, own = taken
    left = {node.id: max(node.devices - others.get(node.id, 0), own.get(node.id, 0)) for node in cluster.nodes}
    if others and not own and sum(left.values()) < least:
        return ()
    return tuple(
        NodeDevices(node=node.id, devices=left[node.id], labels=domains_of(node), usable_bytes=node.known_bytes)
        for node in cluster.nodes
        if left[node.id] and node.devices
    )


def without(nodes: Iterable[NodeDevices], *, withheld: Mapping[NodeId, int]) -> tuple[NodeDevices, ...]:
    """The nodes with so many devices less; those that have none left are gone."""
    left = (replace(node, devices=node.devices - withheld.get(node.node, 0)) for node in nodes)
    return tuple(node for node in left if node.devices > 0)


class NodeWatch:
    """Tells what the table says: at once, and from a thread of its own whenever something has changed.

    Args:
        least: devices below which the run cannot be.
        taken: devices that other runs have, by node; those of this run, which are there whatever others say.
    """

    def __init__(
        self, *, device: Device, cpus_per_worker: int, least: int, taken: Callable[[], Taken],
        tell: Callable[[NodesChanged | DrainAsked], None], failed: Failed,
        looked: Callable[[Iterable[Row]], None] = lambda rows: None,
    ) -> None:  # fmt: skip
        self._device: Device = device
        self._cpus_per_worker, self._least, self._taken = cpus_per_worker, least, taken
        self._tell, self._looked = tell, looked
        self.devices = 0  # of all nodes, whoever has them
        self.alive: frozenset[NodeId] = frozenset()
        self.by_node: dict[NodeId, int] = {}  # of those that the run may use, where nothing is withheld from it
        self.addresses: dict[NodeId, str] = {}
        self._seen: tuple[NodeDevices, ...] | None = None
        self._draining: dict[NodeId, float] = {}
        self._withheld: Mapping[NodeId, int] = {}
        self._look()
        self._closed, self._due = threading.Event(), threading.Event()
        self._thread = start_thread(self._watch, name="node-watch", failed=failed)

    def withhold(self, devices: Mapping[NodeId, int]) -> None:
        """Have the run do without so many devices of each node, the last ones, whatever the table says."""
        self._withheld = devices
        self._due.set()

    def close(self) -> None:
        self._closed.set()
        self._due.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._due.wait(POLL_S)
            self._due.clear()
            if self._closed.is_set():
                return
            self._look()

    def _look(self) -> None:
        rows = ray.nodes()
        cluster = cluster_of(rows, device=self._device, cpus_per_worker=self._cpus_per_worker)
        self.devices = sum(node.devices for node in cluster.nodes)
        found = usable(cluster, taken=self._taken(), least=self._least)
        self.by_node = {node.node: node.devices for node in found}
        seen = without(found, withheld=self._withheld)
        if seen != self._seen:
            self._seen = seen
            alive = addresses_of(rows)
            self.addresses |= alive  # a seat may be asked for on a node that has just gone: Ray refuses it
            self.alive = frozenset(alive)
            self._tell(NodesChanged(nodes=seen))
        self._looked(rows)
        draining = draining_nodes()
        for notice in notices(draining, seen=self._draining, now=time.time()):
            self._tell(notice)
        self._draining = draining
