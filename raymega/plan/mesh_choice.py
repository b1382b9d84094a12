"""Which meshes will do: every axis within what the config and the rules allow, all teams with a place; best first.

    config  dp=2 tp=1 pp=3      6 devices   dp=2 tp=1 pp=3     its own mesh
                                5           dp=2 tp=1 pp=2     the largest that is left of it
                                4           dp=2 tp=1 pp=2
                                3           dp=1 tp=1 pp=3     of two that are as large: tp is kept first, then pp
                                2           dp=1 tp=1 pp=2
                                1           dp=1 tp=1 pp=1

No axis grows beyond what the config asks for, except one that it leaves to the planner (`auto`): that takes what it can
get, replicas before stages before shards. Whether a mesh fits in memory, and how fast it is, is not judged here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from raymega.config.choices import number, tp_sizes
from raymega.config.schema import Auto, Config
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster
from raymega.plan.placement import places_for_teams


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """The sizes an axis may have; `grows` where the planner chooses them."""

    sizes: Sequence[int]
    grows: bool

    def prefer(self, size: int) -> int:
        """Order of preference among meshes that are as large: a fixed axis is kept, a free one stays small."""
        return size if self.grows else -size


def wish(config: Config) -> Mesh:
    """The mesh that the config asks for; an axis left to the planner counts as one, the least it can be."""
    axes = config.parallelism
    return Mesh(
        dp=number(axes.data_parallel_size),
        pp=number(axes.pipeline_model_parallel_size),
        tp=number(axes.tensor_model_parallel_size),
    )


def own_meshes(config: Config, *, cluster: Cluster) -> tuple[Mesh, ...]:
    """The meshes that are just what the config asks for; several only where it leaves an axis to the planner."""
    return _meshes(config, cluster=cluster, least=wish(config))


def smaller_meshes(config: Config, *, cluster: Cluster) -> tuple[Mesh, ...]:
    """The meshes that are left of what the config asks for; any cluster with a free device has one."""
    return _meshes(config, cluster=cluster, least=Mesh(dp=1, pp=1, tp=1))


def _meshes(config: Config, *, cluster: Cluster, least: Mesh) -> tuple[Mesh, ...]:
    """For each tp and pp the largest dp that has room, best first."""
    axes = config.parallelism
    most = min(config.run.devices or cluster.free, cluster.free)
    num_microbatches = config.training.batch_size // config.training.micro_batch_size
    dp = _axis(axes.data_parallel_size, least=least.dp, valid=range(1, num_microbatches + 1))
    pp = _axis(axes.pipeline_model_parallel_size, least=least.pp, valid=range(1, config.model.num_layers + 1))
    tp = _axis(axes.tensor_model_parallel_size, least=least.tp, valid=tp_sizes(config))
    found = []
    places = {shards: min(places_for_teams(cluster, tp=shards), most // shards) for shards in tp.sizes}
    for shards, stages in product(tp.sizes, pp.sizes):
        room = places[shards] // stages
        replicas = max((size for size in dp.sizes if size <= room), default=None)
        if replicas is not None:
            found.append(Mesh(dp=replicas, pp=stages, tp=shards))
    return tuple(sorted(found, key=lambda mesh: (-mesh.size, tp.prefer(mesh.tp), pp.prefer(mesh.pp))))


def _axis(asked: int | Auto, *, least: int, valid: Sequence[int]) -> _Axis:
    if asked == "auto":
        return _Axis(sizes=valid, grows=True)
    return _Axis(sizes=[size for size in valid if least <= size <= asked], grows=False)
