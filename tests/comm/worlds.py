"""Worlds of workers that are threads of the test's process, over each kind of fabric."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from raymega.comm.gloo import GlooFabric
from raymega.comm.group import Fabric, Group, GroupSpec
from raymega.comm.local import LocalFabric, LocalHub, WorkerKilled
from raymega.comm.store import RendezvousStore


class World(Protocol):
    """Makes fabrics that can meet."""

    def fabric(self, me: str, *, generation: int = 1, timeout_s: float = 20.0) -> Fabric: ...
    def close(self) -> None: ...


class LocalWorld:
    def __init__(self) -> None:
        self.hub = LocalHub()

    def fabric(self, me: str, *, generation: int = 1, timeout_s: float = 20.0) -> Fabric:
        return LocalFabric(self.hub, me=me, generation=generation, timeout_s=timeout_s)

    def close(self) -> None:
        return None


class GlooWorld:
    def __init__(self) -> None:
        self.store = RendezvousStore.open()

    def fabric(self, me: str, *, generation: int = 1, timeout_s: float = 20.0) -> Fabric:
        return GlooFabric.connect(self.store.address, me=me, generation=generation, timeout_s=timeout_s)

    def close(self) -> None:
        self.store.close()


WORLDS = {"local": LocalWorld, "gloo": GlooWorld}


def workers(size: int) -> tuple[str, ...]:
    return tuple(f"w{i}" for i in range(size))


def spec(size: int, key: str = "g1/dp/0") -> GroupSpec:
    return GroupSpec(key=key, members=workers(size))


@dataclass(kw_only=True)
class Thread:
    """A thread whose result or error can be asked for; it must have ended by `join`."""

    call: Callable[[], Any]
    result: Any = None
    error: BaseException | None = None

    def start(self) -> "Thread":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def join(self, limit_s: float = 30.0) -> "Thread":
        self._thread.join(limit_s)
        assert not self._thread.is_alive(), "the thread hangs"
        return self

    def _run(self) -> None:
        try:
            self.result = self.call()
        except (Exception, WorkerKilled) as error:
            self.error = error


def start(call: Callable[[], Any]) -> Thread:
    return Thread(call=call).start()


def at_once(calls: list[Callable[[], Any]]) -> list[Thread]:
    """Run all calls side by side and wait for their ends."""
    return [thread.join() for thread in [start(call) for call in calls]]


def on_group(world: World, size: int, body: Callable[[Group], Any], *, key: str = "g1/dp/0") -> list[Any]:
    """Run `body` on every member of a new group; its results by rank; close all."""
    fabrics = [world.fabric(me) for me in workers(size)]
    threads = at_once([lambda f=f: body(f.group(spec(size, key))) for f in fabrics])
    for fabric in fabrics:
        fabric.close()
    for thread in threads:
        if thread.error is not None:
            raise thread.error
    return [thread.result for thread in threads]
