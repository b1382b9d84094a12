import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.pipeline.actions import Action, Kind, parse, show_program
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.parts import joined, owed
from raymega.pipeline.repair import StagesLost
from tests.pipeline.broken_step import Step, missing_by_trial


def shown(step: Step) -> dict[str, str]:
    return {team: show_program(program) for team, program in step.repairs[-1].programs.items() if program}


def finish(step: Step) -> None:
    step.advance(random.Random(0))
    assert step.is_done
    assert step.counted_once()


def test_a_lost_team_s_work_goes_to_its_peer_and_is_fed_from_the_neighbours_logs() -> None:
    step = Step(dp=2, pp=3, num_microbatches=2)
    step.advance(random.Random(0))
    step.kill("0.1")
    made = step.repair()
    assert shown(step) == {"1.1": "1F0 1B0"}
    assert [(str(r.action), r.sender, r.receiver) for r in made.resends] == [
        ("0F0", "0.0", "1.1"),
        ("2B0", "0.2", "1.1"),
    ]
    assert made.reason == (
        "1 backward and 1 forward are missing; 1 micro-batch of 0.1 go to 1.1; 2 messages are sent again from logs"
    )
    finish(step)


def test_three_quotas_of_a_lost_team_are_spread_evenly() -> None:
    step = Step(dp=4, pp=2, num_microbatches=24)
    step.advance(random.Random(0))
    step.kill("2.1")
    assert sorted(len(program) for program in step.repair().programs.values()) == [0, 0, 0, 0, 4, 4, 4]
    finish(step)


def test_two_neighbouring_stages_of_one_replica_may_go_at_once() -> None:
    step = Step(dp=2, pp=4, num_microbatches=2)
    step.advance(random.Random(0))
    step.kill("0.1", "0.2")
    step.repair()
    assert shown(step) == {"1.1": "1F0 1B0", "1.2": "2F0 2B0"}
    finish(step)


def test_a_team_that_repairs_may_die_as_well() -> None:
    rng, step = random.Random(0), Step(dp=3, pp=2, num_microbatches=6)
    step.advance(rng)
    step.kill("0.0")
    step.repair()
    step.run_to(parse("0F0"), rng)
    repairing = step.serves[0, 0]
    step.kill(repairing)
    step.repair()
    own = {m for m in range(6) if f"{m % 3}.0" in ("0.0", repairing)}
    assert {action.microbatch for action in step.repairs[-1].missing} == own
    finish(step)


def test_an_empty_repair_makes_only_the_sums_again() -> None:
    step = Step(dp=2, pp=2, num_microbatches=4)
    step.advance(random.Random(0))
    assert step.repair().reason.startswith("nothing is missing")
    finish(step)


def test_a_stage_without_a_living_team_is_named() -> None:
    step = Step(dp=2, pp=3, num_microbatches=4)
    step.kill("0.1", "1.1")
    assert step.repair() == StagesLost(
        stages=(1,), reason="no living team holds stage 1; its state comes from elsewhere"
    )


def test_a_stage_that_got_its_state_back_is_replayed_alone_from_the_logs() -> None:
    step = Step(dp=1, pp=3, num_microbatches=3)
    step.advance(random.Random(0))
    reports = step.reports() | {"0.1": TeamReport(stages=(1,))}
    step.teams["0.1"] = step._fresh(0, 1)
    made = step.repair(reports)
    assert shown(step) == {"0.1": "1F0 1B0 1F1 1B1 1F2 1B2"}
    assert len(made.resends) == 6
    finish(step)


def test_a_message_that_is_sent_again_waits_for_those_that_are_taken_before_it() -> None:
    step = Step(dp=2, pp=2, num_microbatches=4)
    step.run_each({"0.0": 1, "0.1": 2, "1.0": 2})
    step.kill("0.0")
    made = step.repair()
    assert show_program(made.programs["1.0"]) == "0B1 0F2 0B3 0F0 0B2 0B0"  # 0B0 comes after 0B2, which 0.1 feeds too
    assert ("1B0", "1B2") in [(str(resend.action), str(resend.after)) for resend in made.resends]
    finish(step)


def test_a_weights_part_is_left_to_the_team_that_ran_the_inputs_part() -> None:
    step = Step(dp=2, pp=2, num_microbatches=4, name="zb-h1")
    step.run_each({"0.0": 3, "0.1": 5, "1.0": 3, "1.1": 3})
    step.kill("0.0")
    made = step.repair()
    assert shown(step) == {"1.0": "0W1 0F0 0B0 0F2 0B3 0B2", "0.1": "1W2", "1.1": "1W1 1B3"}
    assert made.reason.endswith("3 weight parts first")
    finish(step)


def test_of_a_lost_team_the_weights_part_is_missing_with_the_rest() -> None:
    step = Step(dp=2, pp=2, num_microbatches=4, name="zb-h1")
    step.advance(random.Random(0))
    step.kill("0.1")
    step.repair()
    assert shown(step) == {"1.1": "1F0 1B0 1F2 1B2"}
    finish(step)


@pytest.mark.parametrize(("dp", "pp"), [(2, 2), (2, 1), (3, 2), (2, 3)])
def test_a_team_may_die_after_every_action_of_a_step(dp: int, pp: int) -> None:
    whole = 2 * pp * 4
    for count in range(whole + 1):
        step = Step(dp=dp, pp=pp, num_microbatches=4)
        step.advance(random.Random(count), most=count)
        step.kill(f"{count % dp}.{count % pp}")
        reports, before = step.reports(), sum(step.runs.values())
        made = step.repair()
        assert made.missing == missing_by_trial(reports, num_stages=pp, num_microbatches=4)
        finish(step)
        assert sum(step.runs.values()) - before == len(made.missing)
        assert all(made.in_flight[team] <= step.limit(team, 4) for team in reports)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    name = draw(st.sampled_from(["1f1b", "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v"]))
    pp = draw(st.integers(2 if name in ("interleaved", "zb-v") else 1, 4))
    chunks = {"interleaved": draw(st.integers(1, 2)), "zb-v": 2}.get(name, 1)
    return Step(dp=draw(st.integers(2, 4)), pp=pp, num_microbatches=draw(st.integers(1, 8)), chunks=chunks, name=name)


@given(step=steps(), rounds=st.integers(1, 3), rng=st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_whoever_dies_and_whenever_every_gradient_and_loss_counts_once(step: Step, rounds: int, rng) -> None:
    for _ in range(rounds):
        step.advance(rng, most=rng.randint(0, 2 * step.num_stages * step.num_microbatches))
        kill_some(step, rng)
        reports, before = step.reports(), step.runs.copy()
        made = step.repair()
        left = {part for team, report in reports.items() if team not in made.anew for part in owed(report.done)}
        shape = {"num_stages": step.num_stages, "num_microbatches": step.num_microbatches}
        in_whole = {team: joined(report) for team, report in reports.items()}
        assert made.missing == left | missing_by_trial(in_whole, **shape)
    finish(step)
    again = step.runs - before
    assert set(again) == made.missing
    assert set(again.values()) <= {1}


@given(step=steps(), rng=st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_logs_with_holes_cost_work_and_nothing_else(step: Step, rng) -> None:
    for _ in range(2):
        step.advance(rng, most=rng.randint(0, 2 * step.num_stages * step.num_microbatches))
        kill_some(step, rng)
        for team in step.teams.values():
            team.log -= {action for action in sorted(team.log) if rng.random() < 0.2}
        step.repair()
    finish(step)


def kill_some(step: Step, rng) -> None:
    """Any teams, but never all of a stage."""
    for name in list(step.teams):
        peers = [team for team in step.teams.values() if team.stages == step.teams[name].stages]
        if len(peers) > 1 and rng.random() < 0.35:
            step.kill(name)


def test_the_independent_count_notices_work_that_is_left_out() -> None:
    lost = {"b": TeamReport(stages=(1,)), "a": TeamReport(stages=(0,), done=frozenset([Action(0, Kind.F, 0)]))}
    found = missing_by_trial(lost, num_stages=2, num_microbatches=1)
    assert found == {parse("0B0"), parse("0F0"), parse("1F0"), parse("1B0")}


@pytest.mark.parametrize("fault", ["left out", "done twice", "not cleared"])
def test_work_that_is_lost_or_doubled_does_not_count_once(fault: str) -> None:
    step = Step(dp=2, pp=1, num_microbatches=2)
    step.advance(random.Random(0))
    if fault == "not cleared":
        kept = step.teams["1.0"].gradients.copy()
        step.repair(step.reports() | {"1.0": replace(step.reports()["1.0"], spoiled=True)})
        step.advance(random.Random(0))
        step.teams["1.0"].gradients += kept
    else:
        step.kill("0.0")
        step.repair()
        peer = step.teams["1.0"]
        peer.program = peer.program[:-1] if fault == "left out" else peer.program
        step.advance(random.Random(0))
        peer.gradients[0, 0] += fault == "done twice"
    assert step.is_done
    assert not step.counted_once()
