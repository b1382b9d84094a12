"""What a planner answers: is what the config asks for any good here, what would be, and why.

    asked      its own layout, if it fixes one: seconds, bytes, the schedule's bubble, and whether it fits
    nearest    where that does not fit: the fewest settings to change, and of those the fastest
    best       the fastest of all that this version can run on the cluster, what is asked for among them
    found      what else was looked at, and why it was refused

Where nothing fits at all, the error names the smallest change of the cluster that would do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.plan.cluster import Cluster
from raymega.plan.estimate import Bench
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.grid import Grid
from raymega.plan.hardware import Precision
from raymega.plan.job import Job, job_of
from raymega.plan.leanest import leanest, nodes_needed, peak_bytes, smallest
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.placement import place
from raymega.plan.plan import ShardOptimizer
from raymega.plan.predict import StepPrediction
from raymega.plan.search import Board, Found, search, timed
from raymega.plan.space import Features, Space, asked_layout, changes, free_space, runnable
from raymega.plan.verdict import Verdict, judge, why_not


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """See above.

    Args:
        wish: the layout that the config asks for.
        asked: its prediction, where there are devices for it.
        refused: why it does not do.
        changed: the settings in which `nearest` differs from it.
    """

    job: Job
    cluster: Cluster
    wish: ParallelLayout | None
    asked: StepPrediction | None
    refused: str | None
    nearest: StepPrediction | None
    changed: tuple[str, ...]
    best: StepPrediction
    found: Found


def advise(
    config: Config,
    *,
    cluster: Cluster,
    features: Features | None = None,
    precision: Precision | None = None,
    constants: Constants = PUBLISHED,
) -> Advice:
    """Judge what `config` asks for on `cluster`, and find the best layout there.

    Args:
        config: with `model.vocab_size` set.
        features: what the trainer can do; default: what this version can.
        precision: instead of the config's.
    Raises:
        PlanError: the cluster has no device, or no layout fits it.
    """
    if cluster.free == 0:
        raise PlanError(f"The cluster has {cluster}, none of them free. Add one.", available=0)
    job = job_of(config, precision=precision)
    space = free_space(config, cluster=cluster, features=features or runnable())
    board = Board.of(job, cluster=cluster, constants=constants)
    found = search(job, space=space, cluster=cluster, constants=constants)
    wish = asked_layout(config)
    lacking = _lacking(wish, cluster=cluster) if wish is not None else None
    asked = board.predicted(wish) if wish is not None and lacking is None else None
    refused = judge(asked).refused if asked is not None else lacking
    best = _fastest(*(board.predicted(row.layout) for row in found.ranked[:1]), asked)
    if best is None:
        raise _nothing_fits(job, space=space, cluster=cluster)
    nearest = _nearest(wish, space=space, board=board) if wish is not None and refused is not None else None
    return Advice(
        job=job,
        cluster=cluster,
        wish=wish,
        asked=asked,
        refused=refused,
        nearest=board.predicted(nearest.layout) if nearest is not None else None,
        changed=changes(wish, nearest.layout) if wish is not None and nearest is not None else (),
        best=best,
        found=found,
    )


def _fastest(*found: StepPrediction | None) -> StepPrediction | None:
    """Of those that fit; of equals the first."""
    return min((one for one in found if one is not None and one.fits), key=lambda one: one.step_s, default=None)


def _lacking(wish: ParallelLayout, *, cluster: Cluster) -> str | None:
    """What the cluster lacks to seat `wish`, if anything."""
    try:
        place(wish.mesh, cluster=cluster)
    except PlanError as error:
        return error.message
    return None


def _nearest(asked: ParallelLayout, *, space: Space, board: Board) -> Verdict | None:
    """The fastest of those that fit and differ in the fewest settings."""
    bench = Bench.of(board.job, cluster=board.cluster, constants=board.constants)
    wide = replace(space, pp=tuple(sorted({*space.pp, asked.mesh.pp})))
    grid = Grid.of(bench, space=wide, more_dp=(asked.mesh.dp,))
    distances = grid.num_changes(asked)
    for distance in sorted(set(distances.tolist())):
        found = timed(grid, board=board, among=distances == distance)
        if found.ranked:
            return found.ranked[0]
    return None


def _nothing_fits(job: Job, *, space: Space, cluster: Cluster) -> PlanError:
    """Name the leanest layout, and how many nodes or what devices would do."""
    node, lean = smallest(cluster), leanest(job, space=space, cluster=cluster)
    usable, memory = node.device.usable_bytes, memory_by_stage(job, lean)
    more = nodes_needed(job, space=space, cluster=cluster)
    bigger = f"devices of {ceil(peak_bytes(job, lean) / usable * node.device.memory_bytes / 1e9):,} GB"
    nodes = f"{more} node{'s' if more != 1 else ''} of {node.devices} {node.device.name}"
    cut = next(_cuts_that_do(job, space=space, cluster=cluster), None)
    ways = [f"set parallelism.shard_optimizer to {cut}"] if cut else []
    ways += [f"add {nodes}", f"use {bigger}"] if more else [f"use {bigger}"]
    way_out = ", or ".join((", ".join(ways[:-1]), ways[-1])) if len(ways) > 1 else ways[0]
    return PlanError(
        f"No layout of this model fits: the cluster has {cluster}. The leanest is {lean}; "
        f"{why_not(memory, (usable,) * len(memory))}. {way_out[0].upper()}{way_out[1:]}.",
        available=cluster.free,
        largest=cluster.largest,
        nodes=more,
    )


def _cuts_that_do(job: Job, *, space: Space, cluster: Cluster) -> Iterator[ShardOptimizer]:
    """How the optimizer's state could be cut so that some layout fits, where it is whole: for the user to ask."""
    cuts: tuple[ShardOptimizer, ...] = ("mirrored", "zero1") if space.shard_optimizer == ("none",) else ()
    for shard in cuts:
        if search(job, space=replace(space, shard_optimizer=(shard,)), cluster=cluster).ranked:
            yield shard
