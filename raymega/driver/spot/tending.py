"""What a run does about the nodes it sees: an agent on those that may be taken back, a request for what it lacks."""

from collections.abc import Iterable

from raymega.config.schema import Config
from raymega.driver.cluster.capacity import Capacity
from raymega.driver.cluster.node_watch import Device, Row
from raymega.driver.spot.agents import SpotAgents


class Tending:
    """All of it, from the first look at the nodes to the run's end."""

    def __init__(self, config: Config, *, device: Device) -> None:
        self._agents, self._capacity = SpotAgents(config.elastic.notices), Capacity(config, device=device)

    def saw(self, rows: Iterable[Row]) -> None:
        """The nodes that there are now."""
        rows = list(rows)
        self._agents.follow(rows)
        self._capacity.follow(rows)

    def close(self) -> None:
        self._agents.close()
        self._capacity.close()
