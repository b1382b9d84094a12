import pytest

from raymega.pipeline.actions import parse_program, show_program, work_of_step
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.repair import StagesLost
from raymega.plan.groups import groups_of
from raymega.plan.plan import Plan
from raymega.plan.programs import team_name, team_programs_of
from raymega.plan.repairs import repair_plan, stages_of
from tests.plan.plans import make_plan


def finished(plan: Plan) -> dict[str, TeamReport]:
    """Reports of all workers at the end of a step."""
    programs = team_programs_of(plan)
    reports = {}
    for rank, worker in enumerate(plan.workers):
        coord = plan.mesh.coord(rank)
        done = frozenset(programs[team_name(coord.replica, coord.stage)])
        reports[worker] = TeamReport(stages=stages_of(plan, coord.stage), done=done, logged=done)
    return reports


def test_one_lost_shard_takes_its_team_s_work_with_it() -> None:
    plan = make_plan(dp=2, pp=2, tp=2)
    reports = finished(plan)
    del reports["w3"]
    made = repair_plan(plan, reports=reports)
    assert made.alive == ((0, 0), (1, 0), (1, 1))
    assert show_program(made.repair.programs["replica 1 stage 1"]) == "1F0 1B0 1F2 1B2"


def test_the_routes_lead_past_the_lost_team_and_only_there_change() -> None:
    plan = make_plan(dp=2, pp=3)
    reports = finished(plan)
    del reports["w1"]
    made = repair_plan(plan, reports=reports)
    assert made.plan.routes == ((0, 1, 0), (1, 1, 1)) * 2
    groups = groups_of(made.plan, generation=2, tied=False, links=made.links)
    pairs = {group.members for group in groups if group.axis == "pair"}
    assert {("w0", "w4"), ("w2", "w4")} <= pairs, "the new ways"
    assert not any("w1" in members for members in pairs)


def test_a_repair_of_the_rerouted_plan_goes_on_from_there() -> None:
    plan = make_plan(dp=3, pp=2)
    reports = finished(plan)
    del reports["w1"]
    first = repair_plan(plan, reports=reports)
    second = repair_plan(first.plan, reports={w: r for w, r in reports.items() if w != "w3"})
    assert {route[1] for route in second.plan.routes} == {2}


def test_a_stage_that_nobody_holds_is_named() -> None:
    plan = make_plan(dp=2, pp=2)
    reports = {worker: report for worker, report in finished(plan).items() if worker not in ("w0", "w2")}
    found = repair_plan(plan, reports=reports)
    assert isinstance(found, StagesLost)
    assert found.stages == (0,)


@pytest.mark.parametrize("gone", ["w0", "w1", "w2", "w3"])
def test_a_lost_team_with_chunks_is_repaired_in_all_of_them(gone: str) -> None:
    plan = make_plan(dp=2, pp=2, chunks=2, schedule="interleaved", num_microbatches=2)
    reports = finished(plan)
    del reports[gone]
    work = {action for program in repair_plan(plan, reports=reports).repair.programs.values() for action in program}
    stage = int(gone[1:]) % 2
    microbatch = int(gone[1:]) // 2
    expected = " ".join(f"{v}{kind}{microbatch}" for v in (stage, stage + 2) for kind in "FB")
    assert work == set(parse_program(expected))


def test_a_healthy_team_in_mid_backward_keeps_all_that_its_shards_have_finished() -> None:
    plan = make_plan(dp=2, pp=2, tp=2)
    reports = finished(plan)
    half = frozenset(parse_program("0F0 0F2 0B0"))
    reports |= dict.fromkeys(("w0", "w1"), TeamReport(stages=(0,), done=half, logged=half))
    del reports["w6"]
    made = repair_plan(plan, reports=reports)
    assert made.repair.kept["replica 0 stage 0"] == half
    assert show_program(made.repair.programs["replica 0 stage 0"]) == "0B2"


def test_shards_that_finished_different_actions_cost_their_team_its_work() -> None:
    plan = make_plan(pp=2, tp=2, num_microbatches=2)
    reports = finished(plan)
    reports["w1"] = TeamReport(stages=(0,), done=frozenset(parse_program("0F0 0F1 0B0")), logged=reports["w1"].logged)
    made = repair_plan(plan, reports=reports)
    assert made.repair.anew == {"replica 0 stage 0"}
    assert show_program(made.repair.programs["replica 0 stage 0"]) == "0F0 0B0 0F1 0B1"


def test_the_steps_after_it_run_on_the_same_routes_and_pass_the_check() -> None:
    plan = make_plan(dp=3, pp=3, num_microbatches=9)
    reports = finished(plan)
    del reports["w1"], reports["w5"]
    rerouted = repair_plan(plan, reports=reports).plan
    idle = {worker: TeamReport(stages=report.stages) for worker, report in reports.items()}
    following = repair_plan(rerouted, reports=idle)
    assert following.plan.routes == rerouted.routes
    assert following.repair.missing == work_of_step(num_stages=3, num_microbatches=9)
    assert following.repair.resends == ()
