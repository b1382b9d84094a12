"""Why this plan: a mesh that the devices have room for, a worker for every rank, layers for every stage.

    mesh_choice   config, devices       -> dp=2 tp=1 pp=2
    placement     mesh, nodes           -> n0 n0 n1 n1  -> w0 w1 w2 w3
    stages        30 layers, pp         -> 15 15
    room          bytes, devices        -> it fits, or the next mesh
                                        => Plan, and the sentence why

A run starts with the mesh that its config asks for, or not at all; once it runs it goes on with what is left. Where the
config leaves axes open, the mesh with the shortest predicted step is taken (`plan.auto`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.arranging import arranged
from raymega.plan.auto import leaves_open, predicted
from raymega.plan.cluster import Cluster, NodeId
from raymega.plan.mesh_choice import own_meshes, smaller_meshes, wish
from raymega.plan.placement import place, places_for_teams, too_few
from raymega.plan.plan import Plan, WorkerId, straight_routes
from raymega.plan.room import Room, room_of
from raymega.plan.shards import mirrored_apart

SHOWN = 3  # meshes in an error


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
        PlanError: the cluster cannot give what the config asks for, or its devices cannot hold it. Facts as in `place`.
    """
    asked = config.run.devices
    if asked is not None and asked > cluster.free:
        raise too_few(asked, what="run.devices", cluster=cluster, way_out=f"Lower it to {cluster.free}")
    seats = [node.id for node in cluster.nodes for _ in range(node.free)]
    workers = {f"w{index}": node for index, node in enumerate(seats)}
    meshes = own_meshes(config, cluster=cluster)
    if not meshes:
        place(wish(config), cluster=cluster)  # raises, with the numbers
    free, room = Cluster.of_workers(workers), room_of(config, usable_bytes=cluster.known_bytes)
    tried = _tried(config, meshes, workers=workers, cluster=free, room=room)
    if tried.plan is None:
        raise _nothing_fits(tried, cluster=cluster)
    return _choice(config, tried, cluster=free)


def plan_for(config: Config, *, workers: Mapping[WorkerId, NodeId], room: Room | None = None) -> PlanChoice:
    """Lay the run over some or all of `workers`: the mesh its config asks for, or the largest that is left of it.

    Any number of workers has a plan, if their devices can hold one. Where not all are needed, earlier ones are
    preferred.

    Args:
        workers: the node of each.
        room: what their devices can hold; None: it is not known, and not judged.
    Raises:
        PlanError: there is no worker, or no mesh fits into the memory of their devices.
    """
    cluster = Cluster.of_workers(workers)
    own, missed = own_meshes(config, cluster=cluster), tuple[Rejected, ...]()
    if own:
        tried = _tried(config, own, workers=workers, cluster=cluster, room=room)
        if tried.plan is not None:
            return _choice(config, tried, cluster=cluster)
        missed = tried.rejected
    seen = {rejected.mesh for rejected in missed}
    smaller = tuple(mesh for mesh in smaller_meshes(config, cluster=cluster) if mesh not in seen)
    if not own and not smaller:
        place(wish(config), cluster=cluster)  # raises, with the numbers
    tried = _tried(config, smaller, workers=workers, cluster=cluster, room=room, missed=missed)
    if tried.plan is None:
        raise _nothing_fits(tried, cluster=cluster)
    return _choice(config, tried, cluster=cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """Meshes in the order in which they are preferred.

    Args:
        plan: of the first that fits; None: none does.
        rejected: those before it, and why they do not fit.
        others: those after it, with their predicted seconds over its own, where that is the order.
        fastest_of: so many were ordered by predicted seconds; 0: by size.
    """

    plan: Plan | None
    rejected: tuple[Rejected, ...]
    others: tuple[tuple[Mesh, float | None], ...] = ()
    fastest_of: int = 0


def _tried(
    config: Config, meshes: tuple[Mesh, ...], *, workers: Mapping[WorkerId, NodeId], cluster: Cluster,
    room: Room | None, missed: tuple[Rejected, ...] = (),
) -> _Tried:  # fmt: skip
    """Take the first mesh that fits: the largest or, where the config leaves axes open, the fastest."""
    seconds = dict[Mesh, float]()
    if leaves_open(config) and len(meshes) > 1:
        ranked = predicted(config, meshes, cluster=cluster)
        seconds = {mesh: step_s for step_s, mesh in ranked}
        meshes = tuple(seconds)
    rejected = list(missed)
    for at, mesh in enumerate(meshes):
        plan = _plan(config, mesh, workers=workers, cluster=cluster)
        lacks = room.why_not(plan, node_of=workers) if room is not None else None
        if lacks is None:
            rest = ((other, seconds[other] / seconds[mesh] if seconds else None) for other in meshes[at + 1 :])
            return _Tried(plan=plan, rejected=tuple(rejected), others=tuple(rest), fastest_of=len(seconds))
        rejected.append(Rejected(mesh=mesh, reason=lacks))
    return _Tried(plan=None, rejected=tuple(rejected))


def _choice(config: Config, tried: _Tried, *, cluster: Cluster) -> PlanChoice:
    """Say why this one, and why not the others."""
    assert tried.plan is not None, "one of them fits"
    mesh = tried.plan.mesh
    after = tuple(Rejected(mesh=other, reason=_why_after(mesh, other, times)) for other, times in tried.others)
    used, rejected = f"{mesh} on {mesh.size} of {counted(cluster.free, noun='device')}", (*tried.rejected, *after)
    if tried.fastest_of:
        full = f", {len(tried.rejected)} of them too large for a device" if tried.rejected else ""
        reason = f"{used}: the fastest of {tried.fastest_of} that the config allows{full}"
        return PlanChoice(plan=tried.plan, reason=reason, rejected=rejected)
    if mesh in own_meshes(config, cluster=cluster):
        return PlanChoice(plan=tried.plan, reason=f"{used}: what the config asks for", rejected=rejected)
    asked = wish(config)
    missed = next((row for row in tried.rejected if row.mesh == asked), None)
    if missed is None:
        missed = Rejected(mesh=asked, reason=_why_not(asked, cluster))
        rejected = (missed, *rejected)
    reason = f"{used}: the largest that is left of {missed.mesh}, which {missed.reason}"
    return PlanChoice(plan=tried.plan, reason=reason, rejected=rejected)


def _nothing_fits(tried: _Tried, *, cluster: Cluster) -> PlanError:
    """Name what lacks least of all, and what would help."""
    shown = "; ".join(f"{row.mesh}: {row.reason}" for row in tried.rejected[:SHOWN])
    more = f"; and {len(tried.rejected) - SHOWN} more" if len(tried.rejected) > SHOWN else ""
    return PlanError(
        f"No mesh that the config allows fits into the memory of its devices; there are {cluster}. {shown}{more}. "
        "Set parallelism.recompute to full, lower training.micro_batch_size, allow more stages or shards, or add "
        "devices with more memory; `raymega plan` says what fits.",
        available=cluster.free,
        largest=cluster.largest,
    )


def _plan(config: Config, mesh: Mesh, *, workers: Mapping[WorkerId, NodeId], cluster: Cluster) -> Plan:
    found = arranged(config, mesh)
    plan = Plan(
        mesh=mesh,
        workers=_seated(mesh, workers=workers, whole=cluster),
        layers=found.layers,
        routes=straight_routes(num_microbatches=_num_microbatches(config), mesh=mesh),
        microbatch_size=config.training.micro_batch_size,
        schedule=found.schedule,
        sequence_parallel=config.parallelism.sequence_parallel and mesh.tp > 1,
        table=found.table,
        shard_optimizer=config.parallelism.shard_optimizer,
    )
    return mirrored_apart(plan, node_of=workers)


def _seated(mesh: Mesh, *, workers: Mapping[WorkerId, NodeId], whole: Cluster) -> tuple[WorkerId, ...]:
    """The worker of each rank: the fewest first ones on whose nodes every team has its place; `whole` has them all."""
    names = list(workers)

    def suffices(cluster: Cluster) -> bool:
        places = places_for_teams(cluster, tp=mesh.tp)
        return places >= mesh.dp * mesh.pp and (mesh.tp <= whole.largest) == (mesh.tp <= cluster.largest)

    clusters = (
        whole if count == len(names) else Cluster.of_workers({name: workers[name] for name in names[:count]})
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
    return f"has {counted(mesh.dp * mesh.pp, noun='team')} of {mesh.tp}, each on one node, where {places} find room"


def _why_after(chosen: Mesh, other: Mesh, times: float | None) -> str:
    if times is not None:
        return f"takes {times:.2f} times as long, as predicted"
    if other.size < chosen.size:
        return f"uses {other.size}, not {chosen.size}"
    return "uses as many devices, with another tp or pp"
