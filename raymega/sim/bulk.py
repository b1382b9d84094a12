"""Steps that break in runs of thousands of workers, counted in bulk: what is spread over whom, not in which order.

    lost             stage 4 of replica 7: its micro-batches of the step go to the teams of stage 4 that live
    all others       go on with what they have in hand, which is not listed action by action
    the rest takes   what was left of the step, and what is spread, by the stage that has most of it

To order the actions of a repair takes seconds at that size; here it takes milliseconds, and the seconds of the rest
differ little (the tests hold both against each other). The rulings, the ladder and the plans are the run's own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from raymega.config.fault import counted
from raymega.mesh import Mesh
from raymega.pipeline.actions import WHOLE, Action, Program
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.repair import Repair, StagesLost
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.programs import team_name
from raymega.plan.repairs import PlanRepair, RepairOrder, piece_lost
from raymega.plan.shards import lost_since
from raymega.sim.step_cost import StepCost


def repair_in_bulk(plan: Plan, *, reports: Mapping[WorkerId, TeamReport]) -> PlanRepair | StagesLost:
    """As `plan.repairs.repair_plan`, with the whole step of the lost teams as what is missing."""
    alive = _whole_teams(plan, reports)
    living = [[replica for replica, stage in alive if stage == s] for s in range(plan.mesh.pp)]
    if not all(living):
        stages = tuple(v for s, replicas in enumerate(living) if not replicas for v in plan.chunks_of(s))
        return StagesLost(stages=stages, reason=f"no living team holds stage {', '.join(map(str, stages))}")
    if (without := piece_lost(plan, alive)) is not None:
        return without
    columns: list[Sequence[int]] = list(zip(*plan.routes, strict=True))
    taken: dict[Place, list[int]] = {place: [] for place in alive}
    for stage in sorted({stage for _, stage in set(plan.teams) - set(alive)}):
        column = columns[stage] = list(columns[stage])
        load = Counter(column)
        for microbatch in [m for m, replica in enumerate(column) if (replica, stage) not in taken]:
            peer = min(living[stage], key=load.__getitem__)
            load[peer] += 1
            column[microbatch] = peer
            taken[peer, stage].append(microbatch)
    routes = tuple(zip(*columns, strict=True))
    gone = frozenset(_places(plan.mesh)) - set(alive)
    rerouted = replace(plan, routes=routes, lost=gone, lost_since=lost_since(plan, lost=gone))
    return PlanRepair(plan=rerouted, alive=alive, repair=_repair(plan, taken))


def _repair(plan: Plan, taken: Mapping[Place, list[int]]) -> Repair:
    programs = {
        team_name(*place): _program(plan, place, microbatches) if microbatches else ()
        for place, microbatches in taken.items()
    }
    moved = {(action.stage, action.microbatch): team for team, program in programs.items() for action in program}
    return Repair(
        programs=programs,
        kept=dict.fromkeys(programs, frozenset()),
        anew=frozenset(),
        moved=moved,
        forwards_only=frozenset(),
        resends=(),
        in_flight={},
        reason=f"{counted(len(moved), noun='micro-batch')} of lost teams "
        f"{'goes' if len(moved) == 1 else 'go'} to their "
        "peers; all others go on with what they have",
    )


def _program(plan: Plan, place: Place, microbatches: list[int]) -> Program:
    return tuple(Action(v, kind, m) for m in microbatches for v in plan.chunks_of(place[1]) for kind in WHOLE)


def _places(mesh: Mesh) -> list[Place]:
    return [(replica, stage) for replica in range(mesh.dp) for stage in range(mesh.pp)]


def _whole_teams(plan: Plan, reports: Mapping[WorkerId, TeamReport]) -> tuple[Place, ...]:
    """Those of which everyone reports."""
    tp, told = plan.mesh.tp, [worker in reports for worker in plan.workers]
    whole = map(all, zip(*(told[shard::tp] for shard in range(tp)), strict=True))
    return tuple(compress(_places(plan.mesh), whole))


def bulk_units(plan: Plan, *, microbatches: int) -> float:
    """A step's passes in forwards of one block, with so many micro-batches spread evenly over the teams that live.

    The busiest stage, and the way of one micro-batch through the others; as `plan.uneven.work_of`.
    """
    living = Counter(stage for _, stage in plan.teams)
    blocks = [sum(plan.layers[v][1] - plan.layers[v][0] for v in plan.chunks_of(s)) for s in range(plan.mesh.pp)]
    paths = (-(-microbatches // living[s]) * held + sum(blocks) - held for s, held in enumerate(blocks))
    return 3 * max(paths)


@dataclass(slots=True, kw_only=True)
class BulkStep:
    """A step on its way, as `sim.step_clock.Underway`.

    Args:
        started_t: None: not yet.
        total_s: from its start to its commit.
    """

    plan: Plan
    cost: StepCost
    total_s: float
    started_t: float | None = None

    @classmethod
    def of(cls, plan: Plan, orders: Mapping[WorkerId, RepairOrder], *, cost: StepCost, left_s: float) -> "BulkStep":
        """Time it; `left_s`: seconds of passes that were left when the step before it broke."""
        if not orders:
            return cls(plan=plan, cost=cost, total_s=cost.step_s)
        living = Counter(stage for _, stage in plan.teams)
        spread = Counter[int]()
        for order in orders.values():
            for action in order.program:
                first, end = plan.layers[action.stage]
                spread[plan.stage_of(action.stage)] += (end - first) * 3  # a forward, and a backward of two
        most = max((units / len(WHOLE) / plan.mesh.tp / living[stage] for stage, units in spread.items()), default=0.0)
        unit_s = cost.pipeline_s / cost.pipeline_units
        return cls(plan=plan, cost=cost, total_s=cost.step_s - cost.pipeline_s + left_s + most * unit_s)

    def done_at(self, t: float) -> dict[Place, frozenset[Action]]:
        """Nobody says what it has done: all go on with it."""
        return {}

    def left_s(self, t: float) -> float:
        """Seconds of passes that are left."""
        passes_s = self.total_s - (self.cost.step_s - self.cost.pipeline_s)
        return passes_s if self.started_t is None else max(0.0, passes_s - (t - self.started_t))
