"""Clusters by name or from plain data, for planning before there is one.

dgx-a100:16             16 nodes of 8 A100 80 GB, NVLink 3 inside, 200 Gbit/s InfiniBand a device between
gcp-a2-highgpu-8g:4     a cloud's machine type
local:8                 one node of 8 CPU workers

nodes: 4                 how many alike, or a list of {count, devices, device, rack, labels}
devices: 8               of each node
device: a100-80g         a name, or {name, memory_bytes, memory_bytes_per_s, flops_per_s: {bf16: ..}, alone}
links: {device: nvlink3, node: infiniband-200, rack: ethernet-100}      names, or {latency_s, bytes_per_s}
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

from raymega.config.fault import counted, nearest
from raymega.errors import ConfigError
from raymega.plan import hardware
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import CPU_CORE, DEVICES, HERE, LARGEST, Device, Link, Links, ethernet, infiniband

_T = TypeVar("_T")

LINKS: Mapping[str, Link] = {
    "nvlink2": hardware.NVLINK2,
    "nvlink3": hardware.NVLINK3,
    "nvlink4": hardware.NVLINK4,
    "pcie3": hardware.PCIE3,
    "pcie4": hardware.PCIE4,
    "shared-memory": hardware.SHARED_MEMORY,
    **{f"infiniband-{speed}": infiniband(speed) for speed in (100, 200, 400)},
    **{f"ethernet-{speed:g}": ethernet(speed) for speed in (1, 6.25, 10, 12.5, 25, 50, 100, 200, 400)},
}

MOST = 100_000  # devices in all, which are planned for in ten seconds
_EXPONENT = re.compile(r"[+-]?\d+(\.\d+)?[eE][+-]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of node."""

    devices: int
    device: Device
    links: Links


def _machine(devices: int, device: str, *, inside: str, between: str) -> Machine:
    links = Links(device=LINKS[inside], node=LINKS[between], rack=LINKS[between])
    return Machine(devices=devices, device=DEVICES[device], links=links)


# Networks: the makers' figures for a machine, divided by its devices.
MACHINES: Mapping[str, Machine] = {
    "dgx-1": _machine(8, "v100-32g", inside="nvlink2", between="ethernet-50"),
    "dgx-a100": _machine(8, "a100-80g", inside="nvlink3", between="infiniband-200"),
    "dgx-h100": _machine(8, "h100-80g", inside="nvlink4", between="infiniband-400"),
    "dgx-h200": _machine(8, "h200", inside="nvlink4", between="infiniband-400"),
    "aws-p3-16xlarge": _machine(8, "v100-16g", inside="nvlink2", between="ethernet-1"),
    "aws-p4d": _machine(8, "a100-40g", inside="nvlink3", between="ethernet-50"),
    "aws-p4de": _machine(8, "a100-80g", inside="nvlink3", between="ethernet-50"),
    "aws-p5": _machine(8, "h100-80g", inside="nvlink4", between="ethernet-400"),
    "aws-g5-48xlarge": _machine(8, "a10g", inside="pcie4", between="ethernet-12.5"),
    "gcp-a2-highgpu-8g": _machine(8, "a100-40g", inside="nvlink3", between="ethernet-12.5"),
    "gcp-a3-highgpu-8g": _machine(8, "h100-80g", inside="nvlink4", between="ethernet-100"),
    "l40s-8": _machine(8, "l40s", inside="pcie4", between="ethernet-50"),
    "cpu": Machine(devices=1, device=CPU_CORE, links=HERE),
}


def cluster_of(word: str) -> Cluster:
    """Read `NAME:NODES`, or `local:DEVICES`.

    Raises: ConfigError if there is no such machine, or no node.
    """
    name, _, number = word.partition(":")
    if name != "local" and name not in MACHINES:
        near = nearest(name, ("local", *MACHINES))
        hint = f"Did you mean {near}?" if near else f"Known are {', '.join(MACHINES)} and local."
        raise ConfigError(f"--cluster: there is no machine {name!r}. {hint}")
    many = _whole(number or "1", what=f"--cluster {word}: the number behind the colon")
    if name == "local":
        return Cluster(nodes=(Node(id="n0", devices=many),))
    machine = MACHINES[name]
    _held_to_most(many * machine.devices, what=f"--cluster {word}")
    nodes = (Node(id=f"n{i}", devices=machine.devices, device=machine.device) for i in range(many))
    return Cluster(nodes=tuple(nodes), links=machine.links)


def cluster_from(data: Mapping[str, Any]) -> Cluster:
    """Read a cluster from plain data, as its YAML says; see above.

    Raises: ConfigError with the key that is wrong.
    """
    _known(data, ("nodes", "devices", "device", "links", "rack", "labels"), where="cluster")
    rows = data.get("nodes", 1)
    groups = rows if isinstance(rows, list) else [{"count": rows}]
    ids, nodes, devices = count(), list[Node](), 0
    for group in groups:
        if not isinstance(group, Mapping):
            raise ConfigError(f"cluster.nodes: {group!r} found; a number, or a list of {{count, devices, device}}.")
        _known(group, ("count", "devices", "device", "rack", "labels"), where="cluster.nodes")
        row = {"count": 1, "devices": 1, "device": "cpu-core", "rack": "", "labels": {}, **data, **group}
        many, size = (_whole(row[key], what=f"cluster.nodes.{key}") for key in ("count", "devices"))
        devices += many * size
        _held_to_most(devices, what="cluster.nodes")
        device, labels = _device(row["device"]), _labels(row["labels"])
        nodes += [
            Node(id=f"n{next(ids)}", devices=size, device=device, rack=str(row["rack"]), labels=labels)
            for _ in range(many)
        ]
    return Cluster(nodes=tuple(nodes), links=_links(data.get("links", {})))


def _labels(data: Any) -> dict[str, str]:
    if not isinstance(data, Mapping):
        raise ConfigError(f"cluster.nodes.labels: {data!r} found; names with values are wanted, as {{zone: b}}.")
    return {str(name): str(value) for name, value in data.items()}


def _links(data: Mapping[str, Any]) -> Links:
    _known(data, ("device", "node", "rack"), where="cluster.links")
    device, node = (_link(data[at], at) if at in data else default for at, default in _DEFAULT_LINKS)
    return Links(device=device, node=node, rack=_link(data["rack"], "rack") if "rack" in data else node)


_DEFAULT_LINKS = (("device", HERE.device), ("node", HERE.node))


def _link(value: Any, at: str) -> Link:
    if isinstance(value, str):
        return _named(value, LINKS, what=f"cluster.links.{at}")
    _known(value, ("latency_s", "bytes_per_s"), where=f"cluster.links.{at}")
    latency_s = _number(value.get("latency_s", 0.0), what=f"cluster.links.{at}.latency_s")
    bytes_per_s = _number(value.get("bytes_per_s"), what=f"cluster.links.{at}.bytes_per_s")
    link = Link(name=f"cluster.links.{at}", latency_s=latency_s, bytes_per_s=bytes_per_s)  # refuses by that name
    return replace(link, name=f"{bytes_per_s / 1e9:,.2f} GB/s ({latency_s * 1e6:,.0f} us)")


def _device(value: Any) -> Device:
    if isinstance(value, str):
        return _named(value, DEVICES, what="cluster.device")
    _known(value, ("name", "memory_bytes", "memory_bytes_per_s", "flops_per_s", "alone"), where="cluster.device")
    numbers = {
        key: _number(value.get(key), what=f"cluster.device.{key}") for key in ("memory_bytes", "memory_bytes_per_s")
    }
    rates = value.get("flops_per_s", {})
    _known(rates, ("fp32", "bf16", "fp16"), where="cluster.device.flops_per_s")
    flops = {key: _number(number, what=f"cluster.device.flops_per_s.{key}") for key, number in rates.items()}
    if not flops:
        raise ConfigError("cluster.device.flops_per_s has no number format. Give at least one of fp32, bf16, fp16.")
    slowest = min(flops.values())
    return Device(
        name=str(value.get("name", "device")),
        flops_per_s={"fp32": slowest, "bf16": slowest, "fp16": slowest, **flops},
        alone=_number(value.get("alone", 1.0), what="cluster.device.alone"),
        **numbers,
    )


def _named(word: str, known: Mapping[str, _T], *, what: str) -> _T:
    if word in known:
        return known[word]
    near = nearest(word, known)
    hint = f"Did you mean {near}?" if near else f"Known are {', '.join(known)}."
    raise ConfigError(f"{what}: there is no {word!r}. {hint}")


def _known(data: Any, keys: tuple[str, ...], *, where: str) -> None:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: {data!r} found; keys {', '.join(keys)} are wanted.")
    for key in data:
        if key not in keys:
            near = nearest(str(key), keys)
            hint = f"Did you mean {near}?" if near else f"Known are {', '.join(keys)}."
            raise ConfigError(f"{where}: unknown key {key}. {hint}")


def _held_to_most(devices: int, *, what: str) -> None:
    if devices > MOST:
        raise ConfigError(
            f"{what} has {counted(devices, noun='device')} in all; up to {MOST:,} can be planned for. Use fewer."
        )


def _whole(value: Any, *, what: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(
            f"{what} is {value}; a cluster has at least one node with at least one device. Use 1 or more."
        )
    if len(text) > len(str(MOST)) or int(text) > MOST:
        raise ConfigError(f"{what} is {value}; up to {MOST:,} can be planned for. Use fewer.")
    return int(text)


def _number(value: Any, *, what: str) -> float:
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)  # YAML takes 1e-5, without a point, to be a word
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what} is {value!r}; a number is wanted, in bytes, seconds or FLOP/s.")
    if not -LARGEST <= value <= LARGEST:
        said = str(value)[:20]
        raise ConfigError(f"{what} is {said}; a finite number up to {LARGEST:g} is wanted. Give a real machine's.")
    return float(value)
