"""A link between workers on threads that takes known times, on a clock that nobody waits for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from raymega.comm.group import Group, GroupSpec, Work
from raymega.comm.local import LocalFabric, LocalHub
from tests.worker.rig import LIMIT_S


@dataclass(kw_only=True)
class Hours:
    """A clock that only counts: what is computed takes as long as a test says, each exchange on the link one hour."""

    now: int = 0
    link_free_at: int = 0
    sums: int = 0

    def send(self) -> int:
        self.sums += 1
        self.link_free_at = max(self.link_free_at, self.now) + 1
        return self.link_free_at


@dataclass(kw_only=True)
class Arriving:
    """An exchange that is through at an hour."""

    work: Work
    hours: Hours
    at: int

    def wait(self) -> None:
        self.work.wait()
        self.hours.now = max(self.hours.now, self.at)


class SlowLink:
    """`LocalFabric` whose ring takes an hour for each `slowed`, a method of groups that starts one, in their order."""

    def __init__(self, hub: LocalHub, *, me: str, generation: int, hours: Hours, slowed: str) -> None:
        self._fabric = LocalFabric(hub, me=me, generation=generation, timeout_s=LIMIT_S)
        self._hours, self._slowed = hours, slowed

    def __getattr__(self, name: str) -> object:
        return getattr(self._fabric, name)

    def group(self, spec: GroupSpec) -> Group:
        group = self._fabric.group(spec)
        if "/dp/" in spec.key:
            setattr(group, self._slowed, partial(self._later, getattr(group, self._slowed)))
        return group

    def _later(self, begin: Callable[..., Work], *given: object, **named: object) -> Arriving:
        return Arriving(work=begin(*given, **named), hours=self._hours, at=self._hours.send())
