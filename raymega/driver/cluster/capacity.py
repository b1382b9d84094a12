"""What a run lacks is asked for: Ray's autoscaler is told which machines there should be, and forgets it with the run.

    4 devices wanted, 2 are left --> request 4 bundles --> the autoscaler starts a node --> nothing is lacking

A request holds until another takes its place, and a cluster has one: of several runs on it the last to ask counts.
Without an autoscaler nobody reads it. Source: `ray.autoscaler.sdk.request_resources` of Ray 2.60, of which all is here.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ray.exceptions import RayError

from raymega.config.schema import Config
from raymega.driver.cluster.node_watch import Device, Row, cluster_of
from raymega.driver.process.by_name import loading
from raymega.plan.mesh_choice import wish

Bundles = tuple[dict[str, float], ...]
Request = Callable[[Bundles], None]


def request_bundles(bundles: Bundles) -> None:
    """Tell the autoscaler; no bundles: it need not keep any. A run goes on without it: what fails is only printed."""
    with loading():
        from ray.autoscaler import sdk  # a good part of a second, and few runs ever ask

    asked: list[dict[str, Any]] = [dict(bundle) for bundle in bundles]
    try:
        sdk.request_resources(bundles=asked)
    except (RayError, RuntimeError) as error:
        print(f"the autoscaler could not be asked for {len(asked)} bundles: {error}", flush=True)


def bundles_of(config: Config, *, device: Device) -> Bundles:
    """What the whole run takes: one bundle a worker, standbys included."""
    one = {"CPU": float(config.run.cpus_per_worker)} | ({"GPU": 1.0} if device == "cuda" else {})
    return (one,) * ((config.run.devices or wish(config).size) + config.elastic.standbys)


class Capacity:
    """Asks for what the run lacks, once for each time that it comes to lack something."""

    def __init__(self, config: Config, *, device: Device, request: Request = request_bundles) -> None:
        self._bundles, self._device, self._request = bundles_of(config, device=device), device, request
        self._cpus_per_worker = config.run.cpus_per_worker
        self._has_asked = self._lacks = False

    def follow(self, rows: Iterable[Row]) -> None:
        """Look at the nodes that there are now."""
        there = cluster_of(rows, device=self._device, cpus_per_worker=self._cpus_per_worker).devices
        lacked, self._lacks = self._lacks, there < len(self._bundles)
        if self._lacks and not lacked:
            self._request(self._bundles)
            self._has_asked = True

    def close(self) -> None:
        """Take back what was asked for."""
        if self._has_asked:
            self._request(())
