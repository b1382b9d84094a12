"""How the workers of a plan finish a step that broke: the repair of `pipeline.repair`, by replica, stage and rank.

    reports of workers --> reports of their teams --repair--> programs, resends, and the plan with other routes

A worker that is lost takes its team with it: its peers' gradients of the step count no more, nor do their logs. Their
state of the last commit stays a source.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from raymega.pipeline.actions import Action, Program, source
from raymega.pipeline.missing import TeamReport, team_report
from raymega.pipeline.repair import Repair, Resend, StagesLost, repair
from raymega.plan.plan import Place, Plan, WorkerId, straight_routes
from raymega.plan.programs import pass_units, programs_of, team_name
from raymega.plan.shards import lost_since, without_holder


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
        """The pairs of teams that the resends connect, each (lower, higher); the routes connect theirs themselves."""
        by_name = {team_name(*place): place for place in self.alive}
        ends = ((by_name[resend.sender], by_name[resend.receiver]) for resend in self.repair.resends)
        return frozenset((min(pair), max(pair)) for pair in ends if pair[0] != pair[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendTo:
    """Send what the log holds of `action` to `receiver`, right after the message of `after`; None: at once."""

    action: Action
    receiver: WorkerId
    after: Action | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOrder:
    """One worker's part of a repair.

    Args:
        program: what it runs.
        kept: what stays of its ledger; the rest is void.
        anew: it clears its accumulators.
        forwards_only: of these it just sends the output: no activation, no loss, no ledger fact.
        taken: actions whose output somebody takes in this run; what was taken in before is logged, and not sent.
        resends: what it sends again, in order.
        senders: of messages that come out of a log, who sends them; all others come from who makes them.
    """

    program: Program
    kept: frozenset[Action]
    anew: bool
    forwards_only: frozenset[Action]
    taken: frozenset[Action]
    resends: tuple[ResendTo, ...]
    senders: Mapping[Action, WorkerId]


def orders_of(found: PlanRepair) -> dict[WorkerId, RepairOrder]:
    """The part of each living worker: shard to shard, as its team's."""
    places = {team_name(*place): place for place in found.alive}
    sources = (source(action, num_stages=len(found.plan.layers)) for action in found.repair.missing)
    taken = frozenset(filter(None, sources))
    sent, received = defaultdict[str, list[Resend]](list), defaultdict[str, list[Resend]](list)
    for resend in found.repair.resends:
        sent[resend.sender].append(resend)
        received[resend.receiver].append(resend)

    def order(name: str, shard: int) -> RepairOrder:
        def worker(team: str) -> WorkerId:
            return found.plan.workers[found.plan.team(*places[team])[shard]]

        return RepairOrder(
            program=found.repair.programs[name],
            kept=found.repair.kept[name],
            anew=name in found.repair.anew,
            forwards_only=found.repair.forwards_only,
            taken=taken,
            resends=tuple(
                ResendTo(action=resend.action, receiver=worker(resend.receiver), after=resend.after)
                for resend in sent[name]
            ),
            senders={resend.action: worker(resend.sender) for resend in received[name]},
        )

    def orders(name: str) -> tuple[RepairOrder, ...]:
        """By shard; all shards of a team that sends and takes nothing again have one, and all teams without work."""
        if sent[name] or received[name]:
            return tuple(order(name, shard) for shard in range(tp))
        if found.repair.programs[name] or found.repair.kept[name] or name in found.repair.anew:
            return (order(name, 0),) * tp
        return idle * tp

    tp = found.plan.mesh.tp
    idle = (
        RepairOrder(
            program=(), kept=frozenset(), anew=False, forwards_only=found.repair.forwards_only, taken=taken,
            resends=(), senders={},
        ),
    )  # fmt: skip
    assert found.alive == found.plan.teams, "the plan of a repair is without those that are lost"
    return dict(zip(found.plan.living, (order for name in places for order in orders(name)), strict=True))


def step_programs_of(plan: Plan) -> tuple[Program, ...]:
    """The program of a whole step, by rank: the schedule's own on straight routes, else one that is safe on any."""
    if plan.routes == straight_routes(num_microbatches=plan.num_microbatches, mesh=plan.mesh):
        return programs_of(plan)
    places = [(replica, stage, rank) for replica, stage in plan.teams for rank in plan.team(replica, stage)]
    found = repair_plan(
        plan, reports={plan.workers[rank]: TeamReport(stages=stages_of(plan, stage)) for _, stage, rank in places}
    )
    assert isinstance(found, PlanRepair), "every stage of a plan has a living team"
    orders = orders_of(found)
    return tuple(orders[worker].program if worker in orders else () for worker in plan.workers)


def repair_plan(plan: Plan, *, reports: Mapping[WorkerId, TeamReport]) -> PlanRepair | StagesLost:
    """Plan the rest of a step over the workers that are left.

    Args:
        plan: the one in force, with the routes of the newest repair of this step, if there was one.
        reports: of every living worker of the plan. A worker that took a lost one's place reports no work.
    """
    alive, named = _teams(plan, reports), dict[str, TeamReport]()
    if (lost := piece_lost(plan, alive)) is not None:
        return lost
    for replica, stage in alive:
        members = [reports[plan.workers[rank]] for rank in plan.mesh.team(replica=replica, stage=stage)]
        named[team_name(replica, stage)] = team_report(members)
    stage_of = {team_name(replica, stage): stage for replica, stage in alive}

    def served_by(virtual_stage: int, microbatch: int) -> str:
        stage = plan.stage_of(virtual_stage)
        return team_name(plan.routes[microbatch][stage], stage)

    def limit(team: str, num_microbatches: int) -> int:
        return plan.most_alive(stage=stage_of[team], num_microbatches=num_microbatches)

    found = repair(
        named,
        served_by=served_by,
        limit=limit,
        durations=pass_units(plan),
        num_stages=len(plan.layers),
        num_microbatches=plan.num_microbatches,
    )
    if isinstance(found, StagesLost):
        return found
    return PlanRepair(plan=_rerouted(plan, found, alive), alive=alive, repair=found)


def piece_lost(plan: Plan, alive: Collection[Place]) -> StagesLost | None:
    """The first stage that lives without some piece of its optimizer's state; None: there is none."""
    for stage, piece in without_holder(plan, alive):
        if any(at == stage for _, at in alive):
            what = f"piece {piece} of the optimizer state of stage {stage}"
            return StagesLost(
                stages=stages_of(plan, stage), reason=f"no living team holds {what}; it comes from elsewhere"
            )
    return None


def stages_of(plan: Plan, stage: int) -> tuple[int, ...]:
    """The virtual stages that the teams of `stage` hold."""
    return plan.chunks_of(stage)


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
        routes[microbatch][plan.stage_of(virtual_stage)] = replica_of[team]
    places = {(replica, stage) for replica in range(plan.mesh.dp) for stage in range(plan.mesh.pp)}
    lost = frozenset(places - set(alive))
    return replace(plan, routes=tuple(map(tuple, routes)), lost=lost, lost_since=lost_since(plan, lost=lost))
