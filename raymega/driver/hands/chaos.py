"""Faults on purpose, as the hands know them: who is told of orders, and what no worker can do to itself.

Controller.chaos(orders) --> DisturbAsked --> brain
brain --> Disturb -----------> ChaosHands.disturb    workers that are there, and in their settings those to come
                   `---------> Replays.do_without    devices that the run has to do without (`hands.trace_replay`)
worker at its point ---------> ChaosHands.take       drain: DrainAsked to the brain; controller: SIGKILL to this process
"""

import time
from collections.abc import Callable

from raymega.config.chaos import parse, read
from raymega.config.rules_chaos import out_of_reach
from raymega.config.schema import Config
from raymega.control.events import DrainAsked
from raymega.driver.hands.worker_group import WorkerGroup
from raymega.errors import ConfigError
from raymega.plan.cluster import NodeId
from raymega.worker import chaos_acts
from raymega.worker.interface import ChaosAsked

DRAIN_S = 30.0  # a spot instance's notice


class ChaosHands:
    """The orders that came after the beginning, and the numbers that nodes have in orders."""

    def __init__(self, tell: Callable[[DrainAsked], None]) -> None:
        self._tell = tell
        self._nodes: dict[NodeId, int] = {}
        self.orders: tuple[str, ...] = ()

    def add(self, orders: tuple[str, ...]) -> None:
        """Workers that are started from now on know them too."""
        self.orders = (*self.orders, *(order for order in orders if order not in self.orders))

    def disturb(self, orders: tuple[str, ...], *, workers: WorkerGroup) -> None:
        """Workers that are there, and those to come, know the orders from now on."""
        self.add(orders)
        for worker in workers.names if orders else ():
            workers.send(worker, "chaos", orders)

    def number_of(self, node: NodeId) -> int:
        """Nodes are numbered as the run comes to use them."""
        return self._nodes.setdefault(node, len(self._nodes))

    def take(self, asked: ChaosAsked, *, node: NodeId) -> None:
        """A worker on `node` has come to the point of an order that is carried out here."""
        order = parse(asked.order)
        if order.verb == "drain":
            by_t = time.time() + (order.for_s if order.for_s is not None else DRAIN_S)
            self._tell(DrainAsked(request=None, node=node, by_t=by_t, cause=f"chaos: {order}"))
        elif order.verb == "kill":
            chaos_acts.kill(whole_node=False)
        else:
            chaos_acts.stop(whole_node=False, for_s=order.for_s)


def check_orders(orders: tuple[str, ...], *, config: Config) -> None:
    """Refuse what the run cannot carry out. Raises: ConfigError with all that is wrong with all of them."""
    wrong = []
    for text in orders:
        found = read(text)
        faults = found.faults if found.order is None else tuple(out_of_reach(found.order, config=config))
        wrong.extend([f'"{text}": {" ".join(faults)}'] if faults else [])
    if wrong:
        raise ConfigError("; ".join(wrong))
