"""The agents of a run: one on each node that may be taken back, as far as nodes come and go.

notices: auto     nodes that are marked as spot     off: none     any other: every node
"""

from collections.abc import Iterable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raymega.driver.cluster.node_watch import Row
from raymega.driver.spot.agent import RemoteSpotAgent
from raymega.plan.cluster import NodeId, is_spot


def watched(rows: Iterable[Row], *, notices: str) -> frozenset[NodeId]:
    """The living nodes on which there is to be an agent."""
    if notices == "off":
        return frozenset()
    alive = (row for row in rows if row["Alive"])
    return frozenset(row["NodeID"] for row in alive if notices != "auto" or is_spot(row.get("Labels", {})))


class SpotAgents:
    """Starts an agent where there is to be one and is none; they end with it, or with this process."""

    def __init__(self, notices: str) -> None:
        self._notices = notices
        self._agents: dict[NodeId, Any] = {}  # Any: Ray's actor handles have no type

    def follow(self, rows: Iterable[Row]) -> None:
        """Have agents on the nodes that there are now."""
        wanted = watched(rows, notices=self._notices)
        for node in self._agents.keys() - wanted:
            del self._agents[node]
        for node in wanted - self._agents.keys():
            on_it = NodeAffinitySchedulingStrategy(node, soft=False)
            self._agents[node] = RemoteSpotAgent.options(scheduling_strategy=on_it).remote(self._notices)

    def close(self) -> None:
        """End them all."""
        for agent in self._agents.values():
            ray.kill(agent)
        self._agents.clear()
