"""A node is to go: which one is meant, and who is told.

    raymega drain RUN NODE          the run first, which may refuse; then Ray, so that nothing new is placed there
    raymega node -- ray start ..    Ray, on SIGTERM; runs read it in Ray's table within half a second

Ray itself does nothing at the deadline, and lets a node leave at once when nothing runs there any more.
"""

from collections.abc import Iterable

import ray

from raymega.config.fault import counted, nearest
from raymega.control.events import DrainAsked
from raymega.driver.cluster.node_watch import Row
from raymega.driver.cluster.ray_private import drain_node, is_head
from raymega.errors import ConfigError
from raymega.plan.cluster import NodeId

SHOWN_DIGITS = 12


def node_named(word: str, *, rows: Iterable[Row]) -> NodeId:
    """The living node that `word` names: by its id or the beginning of it, its host, or its address.

    Raises: ConfigError naming the nearest, or those that are meant where it is more than one.
    """
    alive = [row for row in rows if row["Alive"]]
    meant = [row["NodeID"] for row in alive if word in _names(row) or row["NodeID"].startswith(word)]
    if len(meant) == 1:
        return str(meant[0])
    known = ", ".join(f"{row['NodeID'][:SHOWN_DIGITS]} ({', '.join(_names(row))})" for row in alive)
    if meant:
        raise ConfigError(f"{word} names {counted(len(meant), noun='node')}. Name one by its id: {known}.", nodes=meant)
    near = nearest(word, [name for row in alive for name in (*_names(row), row["NodeID"][: max(4, len(word))])])
    hint = f"Did you mean {near}? " if near else ""
    raise ConfigError(f"{word} is no node of this cluster. {hint}Its nodes are {known}.", nodes=[])


def _names(row: Row) -> tuple[str, ...]:
    return tuple(dict.fromkeys((row["NodeManagerHostname"], row["NodeManagerAddress"])))


def this_node() -> NodeId:
    """The node that this process is connected to."""
    return str(ray.get_runtime_context().get_node_id())


def tell_ray(wish: DrainAsked, *, rows: Iterable[Row]) -> str:
    """Let Ray place nothing more on a node that a run has agreed to leave.

    Returns:
        Why Ray was not told; empty when it was.
    """
    row = next((row for row in rows if row["NodeID"] == wish.node), None)
    if row is None or is_head(row["Resources"]):
        return "it is the head of the cluster, which ends with it" if row is not None else "it is gone"
    address = ray.get_runtime_context().gcs_address
    return drain_node(wish.node, gcs_address=address, by_t=wish.by_t, reason=wish.cause)
