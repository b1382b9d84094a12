"""What a layout meets on the nodes where its ranks sit: whose device is slowest, and which links each talk takes.

    dp=2 tp=2 pp=2 on 2 nodes of 4      team   2 members, 2 a node        links between devices
                                        dp     2 members, 1 a node        links between nodes
                                        hops   stage 0 -> 1, same node    links between devices

One summary a stage: the worst of its teams counts, since a step waits for the slowest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raymega.mesh import Coord, Mesh
from raymega.plan.cluster import Cluster, Node, NodeId
from raymega.plan.collectives import Ring
from raymega.plan.hardware import Device, Link, least_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeats:
    """Where the teams of one stage sit.

    Args:
        device: as slow as the slowest of theirs in everything, at the pace that it has beside those of its node that
            work.
        least_bytes: usable memory of the smallest.
        team: the ring of a team, the worst of them.
        replicas: the ring of those that hold the same boxes, the worst of them.
        hop: the way to the next stage, and from the last to the first; None within one device.
    """

    device: Device
    least_bytes: float
    team: Ring
    replicas: Ring
    hop: Link


def seats_of(mesh: Mesh, *, nodes: Sequence[NodeId], cluster: Cluster) -> tuple[StageSeats, ...]:
    """Summarise each stage.

    Args:
        nodes: of each rank.
    """
    working = Counter(nodes)
    by_id = {node.id: _at_work(node, working=working[node.id]) for node in cluster.nodes if node.id in working}
    return tuple(_stage(mesh, stage, nodes=nodes, by_id=by_id, cluster=cluster) for stage in range(mesh.pp))


def _stage(
    mesh: Mesh, stage: int, *, nodes: Sequence[NodeId], by_id: Mapping[NodeId, Node], cluster: Cluster
) -> StageSeats:
    replicas = range(mesh.dp)
    teams = [[nodes[rank] for rank in mesh.team(replica=replica, stage=stage)] for replica in replicas]
    first = [nodes[mesh.rank(Coord(replica, stage, 0))] for replica in replicas]
    onward = [nodes[mesh.rank(Coord(replica, (stage + 1) % mesh.pp, 0))] for replica in replicas]
    devices = {node: by_id[node].device for team in teams for node in set(team)}.values()
    hops = [_link(by_id[a], by_id[b], cluster) for a, b in set(zip(first, onward, strict=True))]
    return StageSeats(
        device=least_of(devices),
        least_bytes=min(device.usable_bytes for device in devices),
        team=_worst(_ring(team, by_id) for team in {tuple(team) for team in teams}),
        replicas=_ring(first, by_id),
        hop=max(hops, key=lambda link: 1 / link.bytes_per_s),
    )


def _at_work(node: Node, *, working: int) -> Node:
    """The node with devices at the pace that they have beside each other."""
    device = node.device.beside(working=working, devices=node.devices)
    return node if device is node.device else replace(node, device=device)


def _ring(members: Sequence[NodeId], by_id: Mapping[NodeId, Node]) -> Ring:
    """A ring over the nodes of `members`; where they sit unevenly, the loneliest sets the pace."""
    counts = Counter(members)
    racks = {by_id[node].rack for node in counts}
    alone = min(counts.values()) if len(counts) > 1 else len(members)
    return Ring(members=len(members), per_node=alone, crosses_racks=len(racks) > 1)


def _worst(rings: Iterable[Ring]) -> Ring:
    return min(rings, key=lambda ring: (not ring.crosses_racks, ring.per_node))


def _link(a: Node, b: Node, cluster: Cluster) -> Link:
    if a.id == b.id:
        return cluster.links.device
    return cluster.links.node if a.rack == b.rack else cluster.links.rack
