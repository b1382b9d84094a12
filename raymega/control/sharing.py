"""Several runs on one cluster: how many devices each may have, by priority.

    12 devices      a (priority 5) wants 8     b (0) wants 12, least 2, has 12     c (0) wants 4

    what those who run need to be           b 2           10 are left
    priority 5                              a 8           2 are left
    priority 0: what they have,             b 4           nobody takes from a run of the same priority
    then the least of those who wait,       c 0
    then what they want                     b 4, c 0

Every controller asks this of the same facts and so gives way, or waits, by itself; nothing is started on what others
have, so facts of different moments cost a look more, and nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from raymega.config.fault import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a run asks of the cluster.

    Args:
        priority: higher goes first.
        wanted: devices at most, now; `least`: below which it cannot be.
        seats: (node, devices) that it has.
    """

    run: str
    priority: int
    wanted: int
    least: int
    seats: tuple[tuple[str, int], ...] = ()

    @property
    def held(self) -> int:
        """Devices that it has."""
        return sum(devices for _, devices in self.seats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """So many devices, and why as a sentence."""

    devices: int
    reason: str


def allotted(claims: Iterable[Claim], *, devices: int) -> dict[str, Allotment]:
    """What each run may have of `devices`."""
    order = sorted(claims, key=lambda claim: (-claim.priority, claim.run))
    rounds = [(claim, min(claim.least, claim.held, claim.wanted)) for claim in order]
    for priority in sorted({claim.priority for claim in order}, reverse=True):
        alike = [claim for claim in order if claim.priority == priority]
        rounds += [(claim, min(claim.held, claim.wanted)) for claim in alike]
        rounds += [(claim, min(claim.least, claim.wanted)) for claim in alike]
        rounds += [(claim, claim.wanted) for claim in alike]
    given, left = dict.fromkeys((claim.run for claim in order), 0), devices
    for claim, most in rounds:
        more = max(0, min(most - given[claim.run], left))
        given[claim.run] += more
        left -= more
    return {
        claim.run: Allotment(devices=given[claim.run], reason=_reason(claim, given, order, devices)) for claim in order
    }


def taken_by(claims: Iterable[Claim]) -> dict[str, int]:
    """Devices that these runs have, by node."""
    found: dict[str, int] = {}
    for claim in claims:
        for node, devices in claim.seats:
            found[node] = found.get(node, 0) + devices
    return found


def _reason(claim: Claim, given: dict[str, int], order: list[Claim], devices: int) -> str:
    got = given[claim.run]
    share = f"{got} of {counted(devices, noun='device')}"
    if got >= claim.wanted:
        return f"{share}, all that it wants"
    others = [one for one in order if one.run != claim.run and given[one.run]]
    first = [one for one in others if one.priority > claim.priority] or others
    whose = ", ".join(f"{one.run} (priority {one.priority}) {given[one.run]}" for one in first)
    return f"{share}; beside it {whose}" if whose else share
