"""Why this plan: a mesh that the devices have room for, a worker for every rank, layers for every stage.

    mesh_choice   config, devices       -> dp=2 tp=1 pp=2
    placement     mesh, nodes           -> n0 n0 n1 n1  -> w0 w1 w2 w3
    stages        30 layers, pp         -> 15 15
                                        => Plan, and the sentence why

A run starts with the mesh that its config asks for, or not at all; once it runs it goes on with what is left. Where the
config leaves axes open, the mesh with the shortest predicted step is taken (`plan.auto`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raymega.config.schema import Config
from raymega.mesh import Mesh
from raymega.plan.arranging import arranged
from raymega.plan.auto import leaves_open, predicted
from raymega.plan.cluster import Cluster, NodeId
from raymega.plan.mesh_choice import own_meshes, smaller_meshes, wish
from raymega.plan.placement import place, places_for_teams, too_few
from raymega.plan.plan import Plan, WorkerId, straight_routes
from raymega.plan.shards import mirrored_apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A mesh that was not chosen, and why."""

    mesh: Mesh
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoice:
    """A plan, the sentence that says why it is this one, and what else was considered."""

    plan: Plan
    reason: str
    rejected: tuple[Rejected, ...] = ()


def first_plan(config: Config, *, cluster: Cluster) -> PlanChoice:
    """Lay a run that is about to start over the free devices: the mesh its config asks for, or none.

    The workers are named w0, w1, .. along the nodes; the plan holds those that it needs.

    Raises:
        PlanError: the cluster cannot give what the config asks for. Facts as in `place`.
    """
    asked = config.run.devices
    if asked is not None and asked > cluster.free:
        raise too_few(asked, what="run.devices", cluster=cluster, way_out=f"Lower it to {cluster.free}")
    seats = [node.id for node in cluster.nodes for _ in range(node.free)]
    meshes = own_meshes(config, cluster=cluster)
    if not meshes:
        place(wish(config), cluster=cluster)  # raises, with the numbers
    return _choice(config, meshes, workers={f"w{index}": node for index, node in enumerate(seats)})


def plan_for(config: Config, *, workers: Mapping[WorkerId, NodeId]) -> PlanChoice:
    """Lay the run over some or all of `workers`: the mesh its config asks for, or the largest that is left of it.

    Any number of workers has a plan. Where not all are needed, earlier ones are preferred.

    Args:
        workers: the node of each.
    Raises:
        PlanError: there is no worker.
    """
    cluster = Cluster.of_workers(workers)
    meshes = own_meshes(config, cluster=cluster) or smaller_meshes(config, cluster=cluster)
    if not meshes:
        place(wish(config), cluster=cluster)  # raises, with the numbers
    return _choice(config, meshes, workers=workers)


def _choice(config: Config, meshes: tuple[Mesh, ...], *, workers: Mapping[WorkerId, NodeId]) -> PlanChoice:
    """Take the first of `meshes` or, where the config leaves axes open, the fastest; and say why not the others."""
    if leaves_open(config) and len(meshes) > 1:
        return _fastest(config, meshes, workers=workers)
    mesh, num_devices = meshes[0], len(workers)
    plan = _plan(config, mesh, workers=workers)
    rejected = tuple(Rejected(mesh=other, reason=_why_after(mesh, other)) for other in meshes[1:])
    used, cluster = f"{mesh} on {mesh.size} of {num_devices} devices", Cluster.of_workers(workers)
    if mesh in own_meshes(config, cluster=cluster):
        return PlanChoice(plan=plan, reason=f"{used}: what the config asks for", rejected=rejected)
    missed = Rejected(mesh=wish(config), reason=_why_not(wish(config), cluster))
    reason = f"{used}: the largest that is left of {missed.mesh}, which {missed.reason}"
    return PlanChoice(plan=plan, reason=reason, rejected=(missed, *rejected))


def _fastest(config: Config, meshes: tuple[Mesh, ...], *, workers: Mapping[WorkerId, NodeId]) -> PlanChoice:
    """Of the meshes that the config allows, the one with the shortest predicted step."""
    (best_s, mesh), *others = predicted(config, meshes, cluster=Cluster.of_workers(workers))
    return PlanChoice(
        plan=_plan(config, mesh, workers=workers),
        reason=f"{mesh} on {mesh.size} of {len(workers)} devices: the fastest of {len(meshes)} that the config allows",
        rejected=tuple(
            Rejected(mesh=other, reason=f"takes {step_s / best_s:.2f} times as long, as predicted")
            for step_s, other in others
        ),
    )


def _plan(config: Config, mesh: Mesh, *, workers: Mapping[WorkerId, NodeId]) -> Plan:
    found = arranged(config, mesh)
    plan = Plan(
        mesh=mesh,
        workers=_seated(mesh, workers=workers),
        layers=found.layers,
        routes=straight_routes(num_microbatches=_num_microbatches(config), mesh=mesh),
        microbatch_size=config.training.micro_batch_size,
        schedule=found.schedule,
        sequence_parallel=config.parallelism.sequence_parallel and mesh.tp > 1,
        table=found.table,
        shard_optimizer=config.parallelism.shard_optimizer,
    )
    return mirrored_apart(plan, node_of=workers)


def _seated(mesh: Mesh, *, workers: Mapping[WorkerId, NodeId]) -> tuple[WorkerId, ...]:
    """The worker of each rank: the fewest first ones on whose nodes every team has its place."""
    names, is_whole = list(workers), mesh.tp <= Cluster.of_workers(workers).largest

    def suffices(cluster: Cluster) -> bool:
        places = places_for_teams(cluster, tp=mesh.tp)
        return places >= mesh.dp * mesh.pp and is_whole == (mesh.tp <= cluster.largest)

    clusters = (
        Cluster.of_workers({name: workers[name] for name in names[:count]})
        for count in range(mesh.size, len(names) + 1)
    )
    cluster = next(some for some in clusters if suffices(some))
    waiting: dict[NodeId, list[WorkerId]] = {}
    for name in reversed(names):
        waiting.setdefault(workers[name], []).append(name)
    return tuple(waiting[node].pop() for node in place(mesh, cluster=cluster))


def _num_microbatches(config: Config) -> int:
    return config.training.batch_size // config.training.micro_batch_size


def _why_not(mesh: Mesh, cluster: Cluster) -> str:
    if mesh.size > cluster.free:
        return f"needs {mesh.size}"
    places = places_for_teams(cluster, tp=mesh.tp)
    return f"has {mesh.dp * mesh.pp} teams of {mesh.tp}, each on one node, where {places} find room"


def _why_after(chosen: Mesh, other: Mesh) -> str:
    if other.size < chosen.size:
        return f"uses {other.size}, not {chosen.size}"
    return "uses as many devices, with another tp or pp"
