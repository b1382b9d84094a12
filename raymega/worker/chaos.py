"""Faults on purpose: at each named point of a step, this worker carries out the orders whose moment has come.

    begin(step) -- phase compute -- F0 F1 B0 .. -- phase reduce -- bucket 0 .. -- phase decide -- phase apply ..
         |               |           |                  |              |
         +-- orders for this place and this step; each fires once in a run, whoever comes first, repairs included

Once is kept by a marker in RUNDIR/chaos, made by whoever fires. Without orders a point is a look at an empty tuple.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from raymega.config.chaos import ChaosOrder, parse
from raymega.pipeline.actions import Action
from raymega.worker import chaos_acts
from raymega.worker.interface import ChaosAsked, WorkerSettings
from raymega.worker.world import World

FOLDER = "chaos"
HOLD_S = 0.25  # a guess: far above what a report takes to the controller, so that it dies while the worker is here
FILL_S = 10.0  # how long a disk stays full where nothing else is said


class Acts(Protocol):
    """What can be done to this worker and its node."""

    def kill(self, *, whole_node: bool) -> None: ...
    def stop(self, *, whole_node: bool, for_s: float | None) -> None: ...
    def cut(self, *, whole_node: bool, for_s: float | None) -> None: ...
    def fill(self, folder: Path, *, for_s: float) -> None: ...


class Chaos:
    """The orders of one worker. Points are passed on the training thread; orders may be added from any."""

    def __init__(self, *, settings: WorkerSettings, ask: Callable[[ChaosAsked], None], acts: Acts = chaos_acts) -> None:
        self._settings, self._ask, self._acts = settings, ask, acts
        self._adding = threading.Lock()
        self._orders: tuple[ChaosOrder, ...] = ()
        self._due: tuple[ChaosOrder, ...] = ()
        self._generation = 0
        self._slow_until, self._was_here = 0.0, 0.0
        self.add((*settings.config.elastic.chaos, *settings.chaos))

    def add(self, texts: Iterable[str]) -> None:
        """Take more orders; one that is there already is not taken twice."""
        with self._adding:
            known = self._orders
            self._orders = (*known, *(order for order in map(parse, texts) if order not in known))

    def begin(self, *, world: World, step: int) -> None:
        """The step in hand is `step`, counted from 1, at this worker's place in `world`."""
        orders = self._orders
        if orders:
            self._generation = world.generation
            self._due = tuple(order for order in orders if order.step == step and self._is_meant(order, world))

    def phase(self, name: str) -> None:
        """A phase begins; with the first of them the step does."""
        if self._due or self._slow_until:
            self._pass(lambda order: order.phase == name or (name == "compute" and order.has_no_point))

    def action(self, action: Action) -> None:
        """An action begins: nothing of it is done yet."""
        if self._due or self._slow_until:
            here = f"{action.kind}{action.microbatch}"
            self._pass(lambda order: order.action == here)

    def bucket(self, number: int) -> None:
        """The sum of a bucket begins."""
        if self._due:
            self._pass(lambda order: order.bucket == number)

    def _is_meant(self, order: ChaosOrder, world: World) -> bool:
        if order.node is not None:
            is_id = self._settings.node.startswith(order.node) and not order.node.isdecimal()
            return is_id or order.node == str(self._settings.node_number)
        if order.stage is not None:
            coord = world.coord
            return (order.stage, order.replica, order.tp or 0) == (coord.stage, coord.replica, coord.shard)
        return True

    def _pass(self, is_now: Callable[[ChaosOrder], bool]) -> None:
        self._drag()
        for order in self._due:
            if is_now(order) and self._is_first(order):
                self._fire(order)

    def _drag(self) -> None:
        """While it is slow, take as long again as it took to get here."""
        now = time.monotonic()
        if now < self._slow_until:
            time.sleep(now - self._was_here)
            self._was_here = time.monotonic()
        else:
            self._slow_until = 0.0

    def _is_first(self, order: ChaosOrder) -> bool:
        folder = Path(self._settings.run_dir) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with (folder / marker_of(order)).open("x") as marker:
                marker.write(f"{self._settings.worker} pid {os.getpid()} generation {self._generation}\n")
        except FileExistsError:
            return False
        return True

    def _fire(self, order: ChaosOrder) -> None:
        print(f"chaos: {order}", flush=True)
        whole_node, for_s = order.node is not None, order.for_s
        if order.controller or order.verb == "drain":
            self._ask(ChaosAsked(generation=self._generation, order=str(order)))
            time.sleep(HOLD_S if order.controller else 0.0)
            return
        match order.verb:
            case "kill":
                self._acts.kill(whole_node=whole_node)
            case "stall":
                self._acts.stop(whole_node=whole_node, for_s=for_s)
            case "cut":
                self._acts.cut(whole_node=whole_node, for_s=for_s)
            case "fill-disk":
                self._acts.fill(self._disk(), for_s=for_s or FILL_S)
            case "fill-memory":
                raise MemoryError(f"filled on purpose: {order}")
            case "slow":
                self._was_here = time.monotonic()
                self._slow_until = self._was_here + (for_s if for_s is not None else float("inf"))

    def _disk(self) -> Path:
        """Where checkpoints go, if that is a directory; else where the run lies."""
        folder = Path(self._settings.checkpoint_dir)
        return folder if folder.is_dir() else Path(self._settings.run_dir)


def marker_of(order: ChaosOrder) -> str:
    """The name of the file that says that `order` has fired."""
    return str(order).replace(" ", ",")
