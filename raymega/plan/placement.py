"""Ranks -> nodes: a tensor-parallel team stays on one node, a replica stays together, a stage's replicas lie apart.

    dp=2 tp=2 pp=2 on n0 and n1, 4 devices each
      n0 | replica 0: stage 0 = 0 1, stage 1 = 2 3
      n1 | replica 1: stage 0 = 4 5, stage 1 = 6 7       either node may go, and every stage still has a holder

A team talks in every layer, neighbouring stages once a micro-batch, replicas once a step: so the order of what is kept
together. Neighbouring stages leave a node as seldom as can be; among equals, replicas are spread over failure domains
(the nodes' labels), then over nodes. Only a team that is larger than any node is laid over several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from raymega.config.fault import counted
from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.cluster import MARKET_LABEL, ZONE_LABEL, Cluster, Node, NodeId
from raymega.plan.joining import joined

DOMAIN_LABELS = (ZONE_LABEL, MARKET_LABEL)


def place(mesh: Mesh, *, cluster: Cluster) -> tuple[NodeId, ...]:
    """The node of each rank.

    Raises:
        PlanError: there are too few free devices, or too few whole places for teams. Facts: asked, available, largest;
            waits: it would do if others gave back what they hold.
    """
    if mesh.size > cluster.free:
        raise too_few(mesh.size, what=f"Mesh {mesh}", cluster=cluster, way_out=_smaller(mesh, cluster))
    if mesh.tp > cluster.largest:
        return tuple(node.id for node in cluster.nodes for _ in range(node.free))[: mesh.size]
    if mesh.dp * mesh.pp > places_for_teams(cluster, tp=mesh.tp):
        raise _too_scattered(mesh, cluster)
    rows = _replicas(mesh, {node.id: node.free // mesh.tp for node in cluster.nodes}, cluster=cluster)
    # Replicas are alike; those on one node stand side by side, so that a ring over them crosses nodes seldom.
    order = {node.id: index for index, node in enumerate(cluster.nodes)}
    rows.sort(key=lambda row: [order[node] for node in row])
    return tuple(node for row in rows for node in row for _ in range(mesh.tp))


def first_that_suffice(mesh: Mesh, *, cluster: Cluster) -> Cluster:
    """The fewest first devices of `cluster` on which `mesh` has its places: more devices behind them change nothing.

    All of it, if it does not suffice.
    """
    wanted, nodes = mesh.dp * mesh.pp, list[Node]()
    is_whole = mesh.tp <= cluster.largest
    for node in cluster.nodes:
        places = node.free // mesh.tp
        if is_whole and places >= wanted:
            return replace(cluster, nodes=(*nodes, replace(node, devices=node.held + wanted * mesh.tp)))
        nodes.append(node)
        wanted -= places if is_whole else 0
    return cluster


def hops_between_nodes(mesh: Mesh, *, nodes: Sequence[NodeId]) -> int:
    """How often two neighbouring stages of a replica lie on different nodes; `nodes` of each rank."""
    teams = nodes[:: mesh.tp]
    rows = (teams[replica * mesh.pp : (replica + 1) * mesh.pp] for replica in range(mesh.dp))
    return sum(a != b for row in rows for a, b in pairwise(row))


def places_for_teams(cluster: Cluster, *, tp: int) -> int:
    """How many teams of `tp` find room; each on one node if any node is large enough, else laid over several."""
    if tp > cluster.largest:
        return cluster.free // tp
    return sum([(node.devices - node.held) // tp for node in cluster.nodes])


def _replicas(mesh: Mesh, room: Mapping[NodeId, int], *, cluster: Cluster) -> list[list[NodeId]]:
    """The node of each stage, replica by replica: whole ones first, then those laid over several nodes.

    A replica over n nodes leaves one n - 1 times, and so do k replicas that share n nodes in a row: what is left of
    the nodes is joined so that these add up to the least (`plan.joining`).
    """
    whole = _spread([(node, room[node.id] // mesh.pp) for node in cluster.nodes])[: mesh.dp]
    rows = [[node] * mesh.pp for node in whole]
    left = {node: room[node] % mesh.pp for node in room}
    missing = mesh.dp - len(rows)
    for group in joined(left, size=mesh.pp, wanted=missing):
        # The node that holds no whole replica comes first, so that the first stages lie apart.
        line = [node for node in sorted(group, key=lambda node: node in whole) for _ in range(left[node])]
        cuts = range(0, len(line) - mesh.pp + 1, mesh.pp)
        rows += [line[cut : cut + mesh.pp] for cut in cuts][: mesh.dp - len(rows)]
    return rows


def _spread(places: Sequence[tuple[Node, int]]) -> list[NodeId]:
    """So many places of each node, in an order that takes failure domains in turn, and in each its nodes in turn."""
    if not any(count for _, count in places):
        return []
    by_domain: dict[tuple[str, ...], list[tuple[int, int, NodeId]]] = {}
    for index, (node, count) in enumerate(places):
        by_domain.setdefault(domain_of(node), []).extend((turn, index, node.id) for turn in range(count))
    ranked = [
        (place, first, node)
        for first, rows in enumerate(by_domain.values())
        for place, (_, _, node) in enumerate(sorted(rows))
    ]
    return [node for _, _, node in sorted(ranked, key=lambda row: row[:2])]


def domain_of(node: Node) -> tuple[str, ...]:
    """What goes down together: a zone, and in it what can be taken back at once."""
    return tuple(node.labels.get(label, "") for label in DOMAIN_LABELS)


def too_few(asked: int, *, what: str, cluster: Cluster, way_out: str) -> PlanError:
    """Refuse to lay `what`, which asks for more devices than there are free, with the numbers."""
    smaller = way_out if cluster.free else "Use a cluster that has some"
    return PlanError(
        f"{what} needs {cluster.count(asked)}; the cluster has {cluster}. {smaller}, or add {asked - cluster.free}.",
        asked=asked,
        available=cluster.free,
        largest=cluster.largest,
        waits=asked <= cluster.devices,
    )


def _smaller(mesh: Mesh, cluster: Cluster) -> str:
    """What to lower so that the free devices suffice."""
    if dp := cluster.free // (mesh.tp * mesh.pp):
        return f"Lower data_parallel_size to {dp}"
    if pp := cluster.free // mesh.tp:
        return f"Use {Mesh(dp=1, pp=pp, tp=mesh.tp)}"
    return "Lower tensor_model_parallel_size"


def _too_scattered(mesh: Mesh, cluster: Cluster) -> PlanError:
    places, teams = places_for_teams(cluster, tp=mesh.tp), mesh.dp * mesh.pp
    return PlanError(
        f"Mesh {mesh} needs room for {counted(teams, noun='team')} of {mesh.tp}, each on one node; the "
        f"cluster has {cluster}, "
        f"which is room for {places}. Lower data_parallel_size or tensor_model_parallel_size, or add nodes.",
        asked=teams,
        available=places,
        largest=cluster.largest,
        waits=teams <= sum(node.devices // mesh.tp for node in cluster.nodes),
    )
