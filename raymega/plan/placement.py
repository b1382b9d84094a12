"""Ranks -> nodes: a tensor-parallel team stays on one node, a replica stays together, a stage's replicas lie apart.

    dp=2 tp=2 pp=2 on n0 and n1, 4 devices each
      n0 | replica 0: stage 0 = 0 1, stage 1 = 2 3
      n1 | replica 1: stage 0 = 4 5, stage 1 = 6 7       either node may go, and every stage still has a holder

A team talks in every layer, neighbouring stages once a micro-batch, replicas once a step: so the order of what is kept
together. Only a team that is larger than any node is laid over several.
"""

from dataclasses import dataclass, field

from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, NodeId


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
    board = _Board(left={node.id: node.free for node in cluster.nodes})
    rows = [
        [board.take(tp=mesh.tp, replica=replica, stage=stage) for stage in range(mesh.pp)] for replica in range(mesh.dp)
    ]
    # Replicas are alike; those on one node stand side by side, so that a ring over them crosses nodes seldom.
    order = {node.id: index for index, node in enumerate(cluster.nodes)}
    rows.sort(key=lambda row: [order[node] for node in row])
    return tuple(node for row in rows for node in row for _ in range(mesh.tp))


def places_for_teams(cluster: Cluster, *, tp: int) -> int:
    """How many teams of `tp` find room; each on one node if any node is large enough, else laid over several."""
    if tp > cluster.largest:
        return cluster.free // tp
    return sum(node.free // tp for node in cluster.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Board:
    """What is left on each node, and which stages of which replicas stand there already."""

    left: dict[NodeId, int]
    stages: dict[NodeId, set[int]] = field(default_factory=dict)
    replicas: dict[NodeId, set[int]] = field(default_factory=dict)

    def take(self, *, tp: int, replica: int, stage: int) -> NodeId:
        """Put a team on the node that suits it best; of equals, the first. All teams are as large: no place is lost."""
        node = min(
            (node for node, free in self.left.items() if free >= tp),
            key=lambda node: (stage in self.stages.get(node, ()), replica not in self.replicas.get(node, ())),
        )
        self.left[node] -= tp
        self.stages.setdefault(node, set()).add(stage)
        self.replicas.setdefault(node, set()).add(replica)
        return node


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
        f"Mesh {mesh} needs room for {teams} teams of {mesh.tp}, each on one node; the cluster has {cluster}, "
        f"which is room for {places}. Lower data_parallel_size or tensor_model_parallel_size, or add nodes.",
        asked=teams,
        available=places,
        largest=cluster.largest,
        waits=teams <= sum(node.devices // mesh.tp for node in cluster.nodes),
    )
