"""Seconds of a collective among some devices, from what links they have: the alpha-beta model.

    ring over N members    all-reduce     2 (N - 1) a + 2 (N - 1) / N  n / B
                           all-gather, reduce-scatter: half of that

A ring that holds k members on each of several nodes sends over k networks at once, so B is the least of the link
between devices and k times the link between nodes. Source: Patarasuk and Yuan 2009; Thakur et al. 2005.
"""

from dataclasses import dataclass

from raymega.plan.fitted import Constants
from raymega.plan.hardware import Link, Links


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Members of a collective: how many, and how many of them share a node, where it crosses nodes or racks."""

    members: int
    per_node: int
    crosses_racks: bool = False

    @property
    def crosses_nodes(self) -> bool:
        return self.members > self.per_node


def half_ring_s(num_bytes: float, *, ring: Ring, links: Links, constants: Constants) -> float:
    """All-gather or reduce-scatter of `num_bytes` in all."""
    if ring.members == 1:
        return 0.0
    hops, link = ring.members - 1, _slowest(ring, links)
    bytes_per_s = link.bytes_per_s * constants.link_share
    if ring.crosses_nodes:
        bytes_per_s = min(bytes_per_s * ring.per_node, links.device.bytes_per_s * constants.link_share)
    return hops * link.latency_s + hops / ring.members * num_bytes / bytes_per_s


def all_reduce_s(num_bytes: float, *, ring: Ring, links: Links, constants: Constants) -> float:
    """Every member ends with the sum of all members' `num_bytes`."""
    return 2 * half_ring_s(num_bytes, ring=ring, links=links, constants=constants)


def message_s(num_bytes: float, *, link: Link, constants: Constants) -> float:
    """One message from device to device."""
    return link.latency_s + num_bytes / (link.bytes_per_s * constants.link_share)


def _slowest(ring: Ring, links: Links) -> Link:
    if ring.crosses_racks:
        return links.rack
    return links.node if ring.crosses_nodes else links.device
