"""How many devices the run may have now: by its calendar, and by what the other runs of the cluster ask for.

    time of day --> wanted --> claim -----+--> allotted --> ResizeAsked(devices), whenever that has changed
    claims of the other runs, by priority +

Every controller asks every other for its claim and decides for itself (`control.sharing`): the one that has too much
shrinks between two steps, and the one that waits grows onto what was freed. A run that is alone, without a calendar, is
told nothing.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from raymega.config.rules_calendar import entries_of
from raymega.config.schema import Config
from raymega.control.calendar import CalendarEntry, due
from raymega.control.events import ResizeAsked
from raymega.control.sharing import Claim, allotted, taken_by
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.process.threads import Failed, start_thread
from raymega.plan.cluster import NodeId
from raymega.plan.mesh_choice import wish

LOOK_S = 1.0
CLAIM_LIMIT_S = 1.0
PREFIX = "raymega:"  # of the names of controllers; those of workers have another colon behind the run's


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """So many devices at most, and who says so."""

    devices: int
    cause: str


def wanted(config: Config, *, now: float, devices: int) -> Target:
    """What a run would have if it were alone on a cluster of so many devices."""
    calendar = tuple(
        CalendarEntry(minute=60 * int(time[:2]) + int(time[3:]), devices=most) for time, most in entries_of(config)
    )
    if calendar:
        found = due(calendar, zone=ZoneInfo(config.elastic.timezone), now=now)
        return Target(devices=found.devices, cause=found.reason)
    axes = config.parallelism
    sizes = (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    most = config.run.devices or (devices if "auto" in sizes else wish(config).size)
    return Target(devices=most, cause="what the config asks for")


def target(own: Claim, *, others: tuple[Claim, ...], devices: int, cause: str) -> Target:
    """What it may have beside the others: never less than it needs to be.

    Args:
        devices: of the cluster.
        cause: of what it wants.
    """
    share = allotted((own, *others), devices=devices)[own.run]
    if share.devices >= own.wanted:
        return Target(devices=own.wanted, cause=cause)
    return Target(devices=max(share.devices, own.least), cause=f"elastic.priority {own.priority}: {share.reason}")


def claims_beside(run: str, *, known: Mapping[str, Claim]) -> dict[str, Claim]:
    """What the other runs of this cluster ask for, by the controller's name.

    Args:
        known: what they said last: it holds for one that is there and does not answer soon.
    """
    rows = ray.util.list_named_actors(all_namespaces=True)
    names = [row["name"] for row in rows if row["namespace"] == NAMESPACE and row["name"].startswith(PREFIX)]
    asked: dict[ray.ObjectRef, str] = {}
    for name in names:
        if ":" not in name.removeprefix(PREFIX) and name != f"{PREFIX}{run}":
            with suppress(ValueError):  # it ended meanwhile
                claim = getattr(ray.get_actor(name, namespace=NAMESPACE), "claim", None)  # None: of another version
                if claim is not None:
                    asked[claim.remote()] = name
    if not asked:
        return {}
    answered, late = ray.wait(list(asked), num_returns=len(asked), timeout=CLAIM_LIMIT_S)
    found = {asked[ref]: claim for ref in answered if (claim := _claim(ref)) is not None}
    return found | {asked[ref]: known[asked[ref]] for ref in late if asked[ref] in known}


def _claim(ref: ray.ObjectRef) -> Claim | None:
    try:
        claim: Claim | None = ray.get(ref, timeout=CLAIM_LIMIT_S)
    except (RayActorError, GetTimeoutError):  # it is over, or about to be
        return None
    return claim


class SizeWatch:
    """Tells at once what is due, before anything is planned; looks every second, once it is begun.

    Args:
        devices: of the cluster.
    """

    def __init__(self, config: Config, *, run: str, devices: int, tell: Callable[[ResizeAsked], None]) -> None:
        self._config, self._run, self._tell = config, run, tell
        self._devices: Callable[[], int] = lambda: devices
        self._seats: Callable[[], Mapping[NodeId, int]] = dict  # nobody has one yet
        self._told: int | None = None
        self._claims = claims_beside(run, known={})
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._look()

    def taken(self) -> tuple[Mapping[NodeId, int], Mapping[NodeId, int]]:
        """Devices by node: of other runs, of this one."""
        return taken_by(self._claims.values()), self._seats()

    def begin(self, *, devices: Callable[[], int], seats: Callable[[], Mapping[NodeId, int]], failed: Failed) -> None:
        """Go on looking.

        Args:
            devices: of the cluster.
            seats: devices of this run, by node.
        """
        self._devices, self._seats = devices, seats
        self._thread = start_thread(self._watch, name="size-watch", failed=failed)

    def claim(self) -> Claim:
        """What this run asks of the cluster."""
        elastic, most = self._config.elastic, self._wanted().devices
        return Claim(
            run=self._run, priority=elastic.priority, wanted=most, least=min(elastic.min_devices, most),
            seats=tuple(sorted(self._seats().items())),
        )  # fmt: skip

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            with suppress(RayError):  # the run does not depend on it: what was known last holds on
                self._claims = claims_beside(self._run, known=self._claims)
            self._look()

    def _wanted(self) -> Target:
        return wanted(self._config, now=time.time(), devices=self._devices())

    def _look(self) -> None:
        own = self.claim()
        found = target(own, others=tuple(self._claims.values()), devices=self._devices(), cause=self._wanted().cause)
        is_as_planned = self._told is None and not self._config.elastic.calendar and found.devices == own.wanted
        if found.devices != self._told and not is_as_planned:
            self._told = found.devices
            self._tell(ResizeAsked(request=None, devices=found.devices, cause=found.cause))
