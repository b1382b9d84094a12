"""Memory that workers took, beside what the planner predicts for their stage.

memory: 0.41 GB of w3 at most, 0.38 GB predicted for its stage (a step's line, on CPUs, counts libraries in)

On a CPU what is measured is by how much a process has grown, libraries' own buffers included; on a GPU, the allocator's
count. A step's line has all that a process holds on a CPU, and on a GPU the same. The prediction is of the plan in
force, and holds for a steady step.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from raymega.config.schema import Config
from raymega.driver.records.worker_times import WorkerTime
from raymega.plan.job import job_of
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import layout_of, recompute_of
from raymega.plan.plan import Plan, WorkerId

APART = "a step's line, on CPUs, counts libraries in"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Of one worker."""

    peak_bytes: int
    predicted_bytes: float


def memory_of(times: Iterable[WorkerTime], *, plan: Plan | None, config: Config) -> dict[WorkerId, MemoryUse]:
    """Of each worker of `plan` that has told; none where nothing can be predicted: for a model of one's own."""
    if plan is None or config.model.custom is not None or config.model.vocab_size is None:
        return {}
    needs = memory_by_stage(job_of(config), layout_of(plan, recompute=recompute_of(config)))
    told = {time.worker: time.peak_bytes for time in times if time.peak_bytes > 0}
    return {
        worker: MemoryUse(peak_bytes=told[worker], predicted_bytes=needs[plan.coord_of(worker).stage].total)
        for worker in plan.living
        if worker in told
    }


def memory_lines(memory: Mapping[WorkerId, MemoryUse]) -> Iterator[str]:
    """A line on the worker that took most."""
    if memory:
        worker, most = max(memory.items(), key=lambda item: item[1].peak_bytes)
        predicted = f"{most.predicted_bytes / 1e9:,.2f} GB predicted for its stage"
        yield f"memory: {most.peak_bytes / 1e9:,.2f} GB of {worker} at most, {predicted} ({APART})"
