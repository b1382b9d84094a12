"""What there is to plan on: nodes, and how many devices each can give this run.

    n0  4 CPU      cpus_per_worker 1: 4 devices      cpus_per_worker 3: 1 device
    n1  8 CPU, 2 GPU      cuda: 2 devices

A device is what one worker needs: a GPU with `cpus_per_worker` cores beside it or, on CPU, just those cores.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import starmap
from typing import Literal

from raymega.config.fault import counted
from raymega.errors import ConfigError
from raymega.plan.hardware import CPU_CORE, HERE, Device, Links
from raymega.plan.plan import WorkerId

NodeId = str
MARKET_LABEL, ZONE_LABEL = "ray.io/market-type", "ray.io/availability-zone"  # Ray's own, of a node
SPOT = "spot"
NODES_KEPT = 4096  # plans of thousands of nodes are made of the same ones again and again


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether these labels are of a node that may be taken back at any time."""
    return labels.get(MARKET_LABEL) == SPOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine.

    Args:
        devices: that this run could ever get here, those in use by others included.
        held: of these, in use by others now.
        stock: what the node has, in words, for messages: `4 CPU, 0 GPU`.
        labels: what its owner says of it: zone, spot.
        device: what each of its devices is.
        rack: nodes of one rack have a faster way to each other than to the rest.
    """

    id: NodeId
    devices: int
    held: int = 0
    stock: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    device: Device = CPU_CORE
    rack: str = ""

    def __post_init__(self) -> None:
        if self.devices < 0 or not 0 <= self.held <= self.devices:
            raise ConfigError(
                f"Node {self.id} has {counted(self.devices, noun='device')}, {self.held} of them in use; a "
                "node has none or more, and "
                f"not more in use than it has. Give its real numbers."
            )

    @property
    def free(self) -> int:
        return self.devices - self.held

    @property
    def known_bytes(self) -> float | None:
        """Usable on each device; None where it is not known: what a core has of its host's memory is a guess."""
        return None if self.device.name == CPU_CORE.name else self.device.usable_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes that are there now, in the order in which they are filled.

    Args:
        unit: what a device is here, for messages: `device`, `worker of 8 CPUs`.
        links: the ways between devices.
        devices, free: of all nodes; they follow from these.
        largest: devices of the node that has most of them; likewise.
    """

    nodes: tuple[Node, ...]
    unit: str = "device"
    links: Links = HERE
    devices: int = field(init=False, repr=False, compare=False)
    free: int = field(init=False, repr=False, compare=False)
    largest: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """They are asked for with every mesh, of thousands of nodes."""
        sizes = [node.devices for node in self.nodes]
        object.__setattr__(self, "devices", sum(sizes))
        object.__setattr__(self, "free", sum(sizes) - sum(node.held for node in self.nodes))
        object.__setattr__(self, "largest", max(sizes, default=0))

    @classmethod
    def of_workers(cls, workers: Mapping[WorkerId, NodeId]) -> "Cluster":
        """Every worker is a device of its node; nodes in the order in which they first occur."""
        return cls(nodes=tuple(starmap(_node, Counter(workers.values()).items())))

    @property
    def known_bytes(self) -> dict[NodeId, float]:
        """Usable on each device of the nodes of which it is known."""
        return {node.id: known for node in self.nodes if (known := node.known_bytes) is not None}

    def count(self, devices: int) -> str:
        """`1 device`, `5 workers of 8 CPUs`."""
        noun, blank, rest = self.unit.partition(" ")
        return f"{devices} {noun}{'s' if devices != 1 else ''}{blank}{rest}"

    def without(self, lost: Collection[NodeId]) -> "Cluster":
        """The same cluster after the nodes in `lost` have gone."""
        return replace(self, nodes=tuple(node for node in self.nodes if node.id not in lost))

    def __str__(self) -> str:
        """`4 on 2 nodes (2 in use by others); the largest node has 2 (2 CPU, 0 GPU)`."""
        nodes = f"{len(self.nodes)} node{'s' if len(self.nodes) != 1 else ''}"
        held = f" ({self.devices - self.free} in use by others)" if self.free < self.devices else ""
        stock = next((f" ({node.stock})" for node in self.nodes if node.devices == self.largest and node.stock), "")
        return f"{self.devices} on {nodes}{held}; the largest node has {self.largest}{stock}"


@lru_cache(maxsize=NODES_KEPT)
def _node(name: NodeId, devices: int) -> Node:
    return Node(id=name, devices=devices)


def devices_in(resources: Mapping[str, float], *, device: Literal["cpu", "cuda"], cpus_per_worker: int) -> int:
    """How many workers a node's `resources` (by Ray's names) hold.

    >>> devices_in({"CPU": 8.0, "GPU": 2.0}, device="cuda", cpus_per_worker=3)
    2
    >>> devices_in({"CPU": 4.0}, device="cpu", cpus_per_worker=8)
    0
    """
    by_cpu = int(resources.get("CPU", 0.0)) // cpus_per_worker
    return by_cpu if device == "cpu" else min(by_cpu, int(resources.get("GPU", 0.0)))
