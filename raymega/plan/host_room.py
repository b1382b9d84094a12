"""Have the hosts room for the copies of state that workers keep for their peers?

    node of 8 devices    8 x (2 own + 2 of a peer) x masters and moments    <=    the host's memory

On CPUs this is part of what a device needs (`plan.verdict`), and workers of a node share its memory all the same.
Source of what is kept: `layout.copies`.
"""

from collections import Counter
from collections.abc import Mapping

from raymega.errors import PlanError
from raymega.plan.cluster import NodeId
from raymega.plan.job import Job
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import layout_of
from raymega.plan.plan import Plan, WorkerId


def copies_by_node(plan: Plan, *, job: Job, node_of: Mapping[WorkerId, NodeId]) -> dict[NodeId, float]:
    """Bytes of copies on each node."""
    needs, found = memory_by_stage(job, layout_of(plan)), Counter[NodeId]()
    for worker in plan.living:
        need = needs[plan.coord_of(worker).stage]
        found[node_of[worker]] += round(need.host_copies + need.peer_copies)
    return {node: float(num_bytes) for node, num_bytes in found.items()}


def refuse_copies_without_room(
    plan: Plan, *, job: Job, node_of: Mapping[WorkerId, NodeId], host_bytes: Mapping[NodeId, float]
) -> None:
    """Refuse copies that the memory of some host cannot hold.

    Args:
        host_bytes: all memory of each node; one whose memory is not known holds what it must.
    Raises: PlanError naming the node that lacks most.
    """
    wanted = copies_by_node(plan, job=job, node_of=node_of)
    lacks = {node: num_bytes - host_bytes[node] for node, num_bytes in wanted.items() if node in host_bytes}
    node = max(lacks, key=lambda name: lacks[name], default=None)
    if node is None or lacks[node] <= 0:
        return
    raise PlanError(
        f"elastic.copies_every: copies of state need {wanted[node] / 1e9:,.3g} GB of the memory of node {node}, which "
        f"has {host_bytes[node] / 1e9:,.3g} GB. Use nodes with more of it, fewer devices a node, a lower "
        "elastic.tolerate_nodes, or set elastic.copies_every to 0.",
        node=node,
        wanted_bytes=wanted[node],
        host_bytes=host_bytes[node],
    )
