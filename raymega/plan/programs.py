"""Who runs what: plan + schedule -> the program of every rank.

    routes of 3 micro-batches, dp=2 pp=2 tp=1, 1f1b
      0: replica 0 0         replica 0 stage 0 | 0F0 0F2 0B0 0B2        micro-batches 0 and 2
      1: replica 1 1         replica 0 stage 1 | 1F0 1B0 1F2 1B2
      2: replica 0 0         replica 1 stage 0 | 0F1 0B1                an uneven quota: only micro-batch 1
                             replica 1 stage 1 | 1F1 1B1

All shards of a team run the same program. Made once per plan; no message per micro-batch.
"""

from raymega.pipeline.actions import Kind, Program
from raymega.pipeline.catalog import Schedule
from raymega.pipeline.check import check
from raymega.pipeline.running_order import Durations
from raymega.pipeline.timeline import Timeline, timeline
from raymega.plan.plan import Plan


def programs_of(plan: Plan) -> tuple[Program, ...]:
    """The program of a training step, by rank.

    Raises: ConfigError if the schedule is unknown or does not do the plan's chunks.
    """
    row = plan.order
    return _by_rank(plan, {team: _program(plan, row, team) for team in _teams(plan)})


def team_programs_of(plan: Plan) -> dict[str, Program]:
    """The program of each team under the name that messages and pictures call it by."""
    row = plan.order
    return {team_name(replica, stage): _program(plan, row, (replica, stage)) for replica, stage in _teams(plan)}


def check_programs(plan: Plan) -> None:
    """Hold the programs of all teams to `pipeline.check`, the schedule's bound on activations included.

    Straight routes always pass. Routes that cross between replicas may make teams wait for each other in a circle.

    Raises: RaymegaBug with every fault.
    """
    row, pp = plan.order, plan.mesh.pp
    limits = {
        team_name(replica, stage): row.in_flight(
            stage=stage,
            num_stages=pp,
            num_microbatches=len(plan.microbatches_of(replica=replica, stage=stage)),
            chunks=plan.num_chunks,
        )
        for replica, stage in _teams(plan)
    }
    check(
        team_programs_of(plan),
        num_stages=len(plan.layers),
        num_microbatches=plan.num_microbatches,
        kinds=row.kinds,
        in_flight=limits,
        receives_ahead=row.receives_ahead,
    )


def timeline_of(plan: Plan, *, forward_s: float = 1.0, backward_s: float = 2.0, message_s: float = 0.0) -> Timeline:
    """When each action would run if every layer took as long: the schedule's own bubble, uneven stages included.

    Args:
        forward_s: of one layer and micro-batch. The default is a unit, with a backward of twice the work.
        backward_s: the same, backward; each part of one takes half of it.
        message_s: of an activation or gradient from one stage to the next.
    """
    seconds = {Kind.F: forward_s, Kind.B: backward_s, Kind.I: backward_s / 2, Kind.W: backward_s / 2}
    durations = {
        (stage, kind): (end - first) * seconds[kind] for stage, (first, end) in enumerate(plan.layers) for kind in Kind
    }
    return timeline(team_programs_of(plan), durations=durations, num_stages=len(plan.layers), message_s=message_s)


def pass_units(plan: Plan) -> Durations:
    """What each pass takes, in forwards of one block: a whole backward takes two, a part of one takes one."""
    return {
        (v, kind): (end - first) * (2.0 if kind is Kind.B else 1.0)
        for v, (first, end) in enumerate(plan.layers)
        for kind in Kind
    }


def team_name(replica: int, stage: int) -> str:
    """`replica 0 stage 1`."""
    return f"replica {replica} stage {stage}"


def _teams(plan: Plan) -> list[tuple[int, int]]:
    return [(replica, stage) for replica in range(plan.mesh.dp) for stage in range(plan.mesh.pp)]


def _program(plan: Plan, row: Schedule, team: tuple[int, int]) -> Program:
    replica, stage = team
    microbatches = plan.microbatches_of(replica=replica, stage=stage)
    return row.program(stage=stage, num_stages=plan.mesh.pp, microbatches=microbatches, chunks=plan.num_chunks)


def _by_rank(plan: Plan, teams: dict[tuple[int, int], Program]) -> tuple[Program, ...]:
    coords = (plan.mesh.coord(rank) for rank in range(plan.mesh.size))
    return tuple(teams[coord.replica, coord.stage] for coord in coords)
