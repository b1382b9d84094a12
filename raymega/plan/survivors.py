"""What a run becomes with fewer devices: the plan that its brain would take, and what a step then takes.

128 devices   dp=16 tp=8 pp=1   1.31 s   100 % of linear
120 devices   dp=15 tp=8 pp=1   1.40 s   100 %             node after node, the last first
..
  1 device    dp=1 tp=1 pp=1
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.plan.cluster import Cluster, NodeId
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.job import Job
from raymega.plan.parallel_layout import layout_of, recompute_of
from raymega.plan.plan import WorkerId
from raymega.plan.planner import PlanChoice, plan_for
from raymega.plan.predict import StepPrediction, predict_layout
from raymega.plan.room import Room, room_of
from raymega.plan.verdict import judge

MOST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """The plan on so many devices.

    Args:
        share_of_linear: speed over that of all devices, over the share of devices that is left.
        refused: why it does not fit, where it does not.
    """

    devices: int
    choice: PlanChoice
    prediction: StepPrediction
    share_of_linear: float
    refused: str | None


def survivor_plans(
    config: Config, *, job: Job, cluster: Cluster, constants: Constants = PUBLISHED
) -> tuple[Survivors, ...]:
    """The plan for every number of devices, from all to one; by whole nodes above `MOST_ROWS` devices."""
    seats = [node.id for node in cluster.nodes for _ in range(node.free)]
    cuts = _cuts(cluster)
    rows, full_s = list[Survivors](), 0.0
    room = room_of(config, usable_bytes=cluster.known_bytes, job=job)
    for count in cuts:
        workers = {f"w{index}": node for index, node in enumerate(seats[:count])}
        choice = _choice(config, workers=workers, room=room)
        nodes = tuple(workers[worker] for worker in choice.plan.workers)
        layout = layout_of(choice.plan, recompute=recompute_of(config))
        found = predict_layout(layout, job=job, cluster=cluster, nodes=nodes, constants=constants)
        full_s = full_s or found.step_s
        share = full_s / found.step_s / (count / len(seats))
        refused = judge(found).refused
        rows.append(
            Survivors(devices=count, choice=choice, prediction=found, share_of_linear=share, refused=refused)
        )  # fmt: skip
    return tuple(rows)


def _choice(config: Config, *, workers: Mapping[WorkerId, NodeId], room: Room | None) -> PlanChoice:
    """The plan that fits; where none does, the one that would be taken if nobody knew."""
    try:
        return plan_for(config, workers=workers, room=room)
    except PlanError:
        return plan_for(config, workers=workers)


def _cuts(cluster: Cluster) -> list[int]:
    """Numbers of devices, falling."""
    if cluster.free <= MOST_ROWS:
        return list(range(cluster.free, 0, -1))
    left, cuts = cluster.free, []
    for node in reversed(cluster.nodes):
        cuts += [left] if left > 0 and node.free else []
        left -= node.free
    return cuts
