"""Does a plan fit into the memory of its devices, as far as it is known what they have?

    n0, n1    75.2 GB a device      stage 0 needs 81.3 GB of 75.2 GB a device; activations take most, 40.1 GB
    n2        not known             not judged: a device that nobody knows may hold whatever it is given

Bytes are those of `plan.memory`, for the team of the plan that has most micro-batches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from raymega.config.schema import Config
from raymega.plan.cluster import NodeId
from raymega.plan.job import Job, job_of
from raymega.plan.memory import StageMemory, memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout, layout_of, recompute_of
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.verdict import why_not

LayoutOf = Callable[[Plan], ParallelLayout]
MemoryOf = Callable[[Job, ParallelLayout], tuple[StageMemory, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What there is to fill.

    Args:
        layout: of a plan on devices.
        usable_bytes: of each device of a node, for the nodes of which it is known.
        memory: `plan.memory`'s, or one that remembers.
    """

    job: Job
    layout: LayoutOf
    usable_bytes: Mapping[NodeId, float]
    memory: MemoryOf = memory_by_stage

    def why_not(self, plan: Plan, *, node_of: Mapping[WorkerId, NodeId]) -> str | None:
        """The stage that lacks most, and what takes most there; None if nothing is known to lack."""
        here = self._least_bytes(plan, node_of)
        if min(here) == inf:
            return None
        samples = max(plan.busiest) * plan.microbatch_size * plan.mesh.dp  # as if every team had as many
        need = self.memory(replace(self.job, batch_size=samples), self.layout(plan))
        return why_not(need, here)

    def _least_bytes(self, plan: Plan, node_of: Mapping[WorkerId, NodeId]) -> tuple[float, ...]:
        """On the smallest known device of each stage."""
        if len(alike := set(self.usable_bytes.values())) == 1 and self._knows_all(plan, node_of):
            return tuple(alike) * plan.mesh.pp
        least, stages = [inf] * plan.mesh.pp, [stage for _, stage in plan.teams]
        seated, tp = list(map(node_of.__getitem__, plan.living)), plan.mesh.tp
        nodes = set[tuple[int, NodeId]]().union(*(zip(stages, seated[shard::tp], strict=True) for shard in range(tp)))
        for stage, node in nodes:
            least[stage] = min(least[stage], self.usable_bytes.get(node, inf))
        return tuple(least)

    def _knows_all(self, plan: Plan, node_of: Mapping[WorkerId, NodeId]) -> bool:
        return self.usable_bytes.keys() >= set(map(node_of.__getitem__, plan.living))


def room_of(config: Config, *, usable_bytes: Mapping[NodeId, float], job: Job | None = None) -> Room | None:
    """The room of a run; None where nothing can be judged: no device is known, or the model is the user's own.

    Args:
        job: instead of the config's own.
    """
    if not usable_bytes or config.model.custom is not None or config.model.vocab_size is None:
        return None
    layout = partial(layout_of, recompute=recompute_of(config))
    return Room(job=job or job_of(config), layout=layout, usable_bytes=usable_bytes)
