"""What devices and links can do, by their makers' word: the ceilings; what is reached of them stands in `plan.fitted`.

    device   FLOP/s by number format, bytes of memory, bytes/s to it
    links    device  between devices of one node           (NVLink, PCIe, shared memory)
             node    between nodes of one rack, a device   (InfiniBand, Ethernet)
             rack    between racks, a device
    a message of n bytes takes latency_s + n / bytes_per_s   (the alpha-beta model: Hockney 1994)

Bandwidths count one direction. A node's network is shared out over its devices, since all of them send at once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from raymega.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]
GB = 1e9
GIB = 2**30
SMALLEST, LARGEST = 1e-12, 1e24  # of any size or rate: all sums of such are finite
MOST_ALONE = 100.0


def is_positive(value: float) -> bool:
    """Whether `value` is finite, above zero, and of a size that can be reckoned with."""
    return SMALLEST <= value <= LARGEST


def check_positive(name: str, value: float) -> None:
    """Raises: ConfigError if `value` is no positive number."""
    if not is_positive(value):
        raise ConfigError(
            f"{name} is {value:g}; hardware has a positive one, from {SMALLEST:g} to {LARGEST:g}. "
            "Give it in bytes, seconds or FLOP/s."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device: what a worker computes on.

    Args:
        flops_per_s: dense matrix products, by number format.
        memory_bytes: all of it; what a run may fill is `usable_bytes`.
        memory_bytes_per_s: between memory and its arithmetic.
        alone: pace of one whose neighbours on the node are idle, over that of one of which all work; rates are of the
            latter. Cores share caches, memory and the clock's power.
    """

    name: str
    flops_per_s: Mapping[Precision, float] = field(hash=False)
    memory_bytes: float
    memory_bytes_per_s: float
    alone: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.alone <= MOST_ALONE:
            raise ConfigError(
                f"alone of {self.name} is {self.alone:g}; without its neighbours a device is as fast as beside them or "
                f"faster, by up to {MOST_ALONE:g}. Give 1 where they share nothing."
            )
        check_positive(f"memory_bytes of {self.name}", self.memory_bytes)
        check_positive(f"memory_bytes_per_s of {self.name}", self.memory_bytes_per_s)
        for precision, value in self.flops_per_s.items():
            check_positive(f"flops_per_s.{precision} of {self.name}", value)

    def beside(self, *, working: int, devices: int) -> "Device":
        """The same where so many of a node's devices work, evenly between all of them and one alone."""
        if self.alone == 1.0 or working >= devices:
            return self
        pace = 1 + (self.alone - 1) * (devices - working) / (devices - 1)
        rates = {precision: min(LARGEST, rate * pace) for precision, rate in self.flops_per_s.items()}
        copied = min(LARGEST, self.memory_bytes_per_s * pace)
        return replace(self, flops_per_s=rates, memory_bytes_per_s=copied, alone=1.0)

    @property
    def usable_bytes(self) -> float:
        """Less what driver, libraries and fragments of free memory take: 6 %, a guess."""
        return self.memory_bytes * 0.94


def most_of(devices: Collection[Device]) -> Device:
    """A device that has in everything the most that one of these has: none of them is faster."""
    return _each(devices, pick=max, name="the most of each")


def least_of(devices: Collection[Device]) -> Device:
    """A device that has in everything the least that one of these has: none of them is slower."""
    return _each(devices, pick=min, name="the least of each")


def _each(devices: Collection[Device], *, pick: Callable[[Iterable[float]], float], name: str) -> Device:
    first, *others = devices
    if all(other is first or other == first for other in others):
        return first
    formats = set(first.flops_per_s).intersection(*(other.flops_per_s for other in others))
    return Device(
        name=name,
        flops_per_s={word: pick([device.flops_per_s[word] for device in devices]) for word in formats},
        memory_bytes=pick([device.memory_bytes for device in devices]),
        memory_bytes_per_s=pick([device.memory_bytes_per_s for device in devices]),
        alone=pick([device.alone for device in devices]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way from one device to another."""

    name: str
    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        check_positive(f"bytes_per_s of {self.name}", self.bytes_per_s)
        if not 0 <= self.latency_s <= LARGEST:
            raise ConfigError(
                f"latency_s of {self.name} is {self.latency_s:g}; no message arrives before it is sent, and each does "
                "some day. Give seconds, from 0 on."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The ways between two devices: of one node, of one rack, of two racks."""

    device: Link
    node: Link
    rack: Link

    def at_best(self) -> "Links":
        """None of them with more latency than a way that leads further, nor further ways with less bandwidth."""
        latency_s = min(self.device.latency_s, self.node.latency_s, self.rack.latency_s)
        far = max(self.node.bytes_per_s, self.rack.bytes_per_s)
        node = replace(self.node, latency_s=min(self.node.latency_s, self.rack.latency_s), bytes_per_s=far)
        return Links(device=replace(self.device, latency_s=latency_s), node=node, rack=node)


def _gpu(name: str, *, half: float, single: float, memory: float, bandwidth: float) -> Device:
    """TFLOP/s (single: TF32 where there are tensor cores for it), GB, GB/s."""
    return Device(
        name=name,
        flops_per_s={"bf16": half * 1e12, "fp16": half * 1e12, "fp32": single * 1e12},
        memory_bytes=memory * GIB,
        memory_bytes_per_s=bandwidth * GB,
    )


# Data sheets of NVIDIA: dense, without sparsity. cpu-core: a guess of one core with AVX-512 at 2.5 GHz.
DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        _gpu("v100-16g", half=125, single=15.7, memory=16, bandwidth=900),
        _gpu("v100-32g", half=125, single=15.7, memory=32, bandwidth=900),
        _gpu("a10g", half=70, single=35, memory=24, bandwidth=600),
        _gpu("l4", half=121, single=60, memory=24, bandwidth=300),
        _gpu("l40s", half=362, single=183, memory=48, bandwidth=864),
        _gpu("a100-40g", half=312, single=156, memory=40, bandwidth=1555),
        _gpu("a100-80g", half=312, single=156, memory=80, bandwidth=2039),
        _gpu("h100-80g", half=989, single=495, memory=80, bandwidth=3350),
        _gpu("h200", half=989, single=495, memory=141, bandwidth=4800),
        Device(
            name="cpu-core",
            flops_per_s={"fp32": 80e9, "bf16": 80e9, "fp16": 20e9},
            memory_bytes=4 * GIB,
            memory_bytes_per_s=10 * GB,
        ),
    )
}
CPU_CORE = DEVICES["cpu-core"]

# Latencies are guesses of the usual order; bandwidths are the makers' peaks.
NVLINK2 = Link(name="NVLink 2", latency_s=5e-6, bytes_per_s=150 * GB)
NVLINK3 = Link(name="NVLink 3", latency_s=5e-6, bytes_per_s=300 * GB)
NVLINK4 = Link(name="NVLink 4", latency_s=5e-6, bytes_per_s=450 * GB)
PCIE3 = Link(name="PCIe 3 x16", latency_s=10e-6, bytes_per_s=16 * GB)
PCIE4 = Link(name="PCIe 4 x16", latency_s=10e-6, bytes_per_s=32 * GB)
SHARED_MEMORY = Link(name="shared memory", latency_s=50e-6, bytes_per_s=4 * GB)


def infiniband(gbit_per_s: float) -> Link:
    """InfiniBand with so many Gbit/s for each device."""
    return Link(name=f"InfiniBand {gbit_per_s:g} Gbit/s", latency_s=8e-6, bytes_per_s=gbit_per_s * GB / 8)


def ethernet(gbit_per_s: float) -> Link:
    """Ethernet with so many Gbit/s for each device."""
    return Link(name=f"Ethernet {gbit_per_s:g} Gbit/s", latency_s=30e-6, bytes_per_s=gbit_per_s * GB / 8)


HERE = Links(device=SHARED_MEMORY, node=ethernet(10), rack=ethernet(10))
