"""Where a config leaves axes to the planner: the meshes it allows, by predicted seconds of a step.

    dp=auto tp=1 pp=auto on 4 devices      dp=4 pp=1   0.26 s
                                           dp=2 pp=2   0.31 s
                                           dp=1 pp=4   0.44 s

By the closed form of `plan.estimate`, for a run must have its plan at once, with the published constants: they rank
layouts of one cluster, whose devices are alike, even where its real speed is not known.
"""

from collections.abc import Sequence

import numpy as np

from raymega.config.schema import Config
from raymega.mesh import Mesh
from raymega.model_shape import local_parameter_count
from raymega.pipeline.catalog import schedule
from raymega.plan.arranging import PLAIN
from raymega.plan.cluster import Cluster
from raymega.plan.estimate import Bench
from raymega.plan.fitted import PUBLISHED
from raymega.plan.job import job_of


def leaves_open(config: Config) -> bool:
    """Whether there is a choice of mesh to predict; a model of one's own has sizes that only it knows."""
    axes = config.parallelism
    sizes = (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    return "auto" in sizes and config.model.vocab_size is not None and config.model.custom is None


def predicted(config: Config, meshes: Sequence[Mesh], *, cluster: Cluster) -> tuple[tuple[float, Mesh], ...]:
    """(seconds of a step, mesh), the fastest first; of equals, in the order given."""
    bench = Bench.of(job_of(config), cluster=cluster, constants=PUBLISHED)
    return tuple(sorted(((_step_s(config, mesh, bench=bench), mesh) for mesh in meshes), key=lambda row: row[0]))


def _step_s(config: Config, mesh: Mesh, *, bench: Bench) -> float:
    job, micro = bench.job, config.training.micro_batch_size
    parts = bench.parts(
        tp=mesh.tp,
        microbatch_size=micro,
        sequence_parallel=config.parallelism.sequence_parallel and mesh.tp > 1,
        recompute="none",
    )
    counted, pp = local_parameter_count(job.model, seq_len=job.seq_len, tp=mesh.tp), np.array([float(mesh.pp)])
    pipe = parts.pipe(num_layers=counted.blocks, pp=pp, hops_s=bench.hops_s(parts.site, pp=pp))
    each = np.array([float(-(-job.batch_size // (micro * mesh.dp)))])
    span_s, _ = pipe.span_s(schedule(PLAIN), chunks=1, microbatches=each)
    shard = config.parallelism.shard_optimizer
    return float(span_s[0]) + bench.ends_s(counted, pp=mesh.pp, tp=mesh.tp, dp=mesh.dp, shard=shard)
