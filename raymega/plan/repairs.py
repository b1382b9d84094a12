"""How the workers of a plan finish a step that broke: the repair of `pipeline.repair`, by replica, stage and rank.

    reports of workers --> reports of their teams --repair--> programs, resends, and the plan with other routes

A worker that is lost takes its team with it: its peers' gradients of the step count no more, nor do their logs. Their
state of the last commit stays a source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from raymega.pipeline.catalog import schedule
from raymega.pipeline.missing import TeamReport, team_report
from raymega.pipeline.repair import Repair, StagesLost, repair
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.programs import team_name

Place = tuple[int, int]  # (replica, stage) of a team


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRepair:
    """The rest of the step.

    Args:
        plan: the plan with the routes of the repair; none of them leads through a lost team.
        alive: the teams that are whole, in the plan's order.
        repair: teams go by `team_name`.
    """

    plan: Plan
    alive: tuple[Place, ...]
    repair: Repair

    @property
    def links(self) -> frozenset[tuple[Place, Place]]:
        """The pairs of teams that the routes or the resends connect, each (lower, higher)."""
        by_name = {team_name(*place): place for place in self.alive}
        pp, num_stages = self.plan.mesh.pp, len(self.plan.layers)
        hops = {(v % pp, (v + 1) % pp) for v in range(num_stages - 1)}
        ends = [((route[a], a), (route[b], b)) for route in self.plan.routes for a, b in hops]
        ends += [(by_name[resend.sender], by_name[resend.receiver]) for resend in self.repair.resends]
        return frozenset((min(pair), max(pair)) for pair in ends if pair[0] != pair[1])


def repair_plan(plan: Plan, *, reports: Mapping[WorkerId, TeamReport]) -> PlanRepair | StagesLost:
    """Plan the rest of a step over the workers that are left.

    Args:
        plan: the one in force, with the routes of the newest repair of this step, if there was one.
        reports: of every living worker of the plan. A worker that took a lost one's place reports no work.
    """
    alive, named = _teams(plan, reports), dict[str, TeamReport]()
    for replica, stage in alive:
        members = [reports[plan.workers[rank]] for rank in plan.mesh.team(replica=replica, stage=stage)]
        named[team_name(replica, stage)] = team_report(members)
    row, pp = schedule(plan.schedule), plan.mesh.pp
    stage_of = {team_name(replica, stage): stage for replica, stage in alive}

    def served_by(virtual_stage: int, microbatch: int) -> str:
        return team_name(plan.routes[microbatch][virtual_stage % pp], virtual_stage % pp)

    def limit(team: str, num_microbatches: int) -> int:
        return row.in_flight(
            stage=stage_of[team], num_stages=pp, num_microbatches=num_microbatches, chunks=plan.num_chunks
        )

    found = repair(
        named,
        served_by=served_by,
        limit=limit,
        num_stages=len(plan.layers),
        num_microbatches=plan.num_microbatches,
    )
    if isinstance(found, StagesLost):
        return found
    return PlanRepair(plan=_rerouted(plan, found, alive), alive=alive, repair=found)


def stages_of(plan: Plan, stage: int) -> tuple[int, ...]:
    """The virtual stages that the teams of `stage` hold."""
    return tuple(range(stage, len(plan.layers), plan.mesh.pp))


def _teams(plan: Plan, reports: Mapping[WorkerId, TeamReport]) -> tuple[Place, ...]:
    mesh = plan.mesh
    places = [(replica, stage) for replica in range(mesh.dp) for stage in range(mesh.pp)]
    return tuple(
        (replica, stage)
        for replica, stage in places
        if all(plan.workers[rank] in reports for rank in mesh.team(replica=replica, stage=stage))
    )


def _rerouted(plan: Plan, found: Repair, alive: tuple[Place, ...]) -> Plan:
    replica_of = {team_name(replica, stage): replica for replica, stage in alive}
    routes = [list(route) for route in plan.routes]
    for (virtual_stage, microbatch), team in found.moved.items():
        routes[microbatch][virtual_stage % plan.mesh.pp] = replica_of[team]
    return replace(plan, routes=tuple(map(tuple, routes)))
