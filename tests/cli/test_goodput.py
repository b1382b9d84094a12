from dataclasses import replace

import pytest

from raymega.control.outlook import Drain, Outlook
from raymega.control.states import Seat, first_state, with_story
from raymega.driver.records.accounting import progress_of
from raymega.driver.records.exposure import Exposure
from raymega.driver.records.progress import Facts, Progress
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.run_status import draining_of, resume_step_of, standbys_of, status_of
from raymega.driver.records.summary import goodput_lines
from raymega.driver.records.time_sheets import TimeSheets
from raymega.worker.time_sheet import Spent
from tests.driver.test_accounting import CONFIG, trained


def test_status_says_where_the_worker_seconds_of_a_run_went(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    turns = trained(run_dir, kill_once={13: 2})
    status = status_of(run_dir, now=turns[-1].t)
    assert status.steps_lost == 2
    assert sum(status.worker_s.values()) == pytest.approx(4 * (turns[-1].t - 1000.0))
    assert f"goodput {status.goodput:.1%} of " in str(status)
    assert "2 steps lost" in str(status)


def test_status_and_summary_tell_what_the_workers_have_told_of_their_seconds(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    turns = trained(run_dir)
    sheets = TimeSheets(run_dir.workers, began_t=1000.0)
    sheets.asked(("w0", "w1"), t=1000.0)
    sheets.heard("w0", Spent(born_t=1.0, seconds={"useful": 6.0, "bubble": 1.0}), t=1008.0)
    sheets.heard("w1", Spent(born_t=1.0, seconds={"useful": 4.0, "validation": 4.0}), t=1008.0)
    sheets.write(t=1008.0)
    status = status_of(run_dir, now=turns[-1].t)
    assert status.goodput == pytest.approx(11 / 16)
    assert status.workers["w1"]["validation"] == 4.0
    said = "68.8% of 16.0 worker-seconds went into committed steps, 62.5% into their computing (useful)"
    assert f"goodput {said}\n    start               1.0 s    6.2%\n" in str(status)
    progress, facts = progress_of(run_dir), Facts(name="a", run_dir=str(tmp_path), config=CONFIG, flops_per_token=1)
    first, *_, clocks = goodput_lines(progress, facts=facts)
    assert said in first
    assert "of all launches, by the workers' clocks; a step's line tells of its own" in clocks


def test_a_summary_leaves_out_shares_of_nothing(tmp_path):
    facts = Facts(name="a", run_dir=str(tmp_path), config=CONFIG, flops_per_token=1)
    nothing = Progress.begin(1000.0)
    assert list(goodput_lines(nothing, facts=facts)) == []
    started = replace(nothing, goodput=replace(nothing.goodput, seconds={"start": 8.0}))
    first, table = goodput_lines(started, facts=facts)
    assert first == "  time           8.0 worker-seconds, none of them in a committed step"
    assert table.split() == ["start", "8.0", "s", "100.0%"]


def test_waits_say_what_for_and_what_a_backward_hides(tmp_path):
    exposure = Exposure(hidden_s=1.0, exposed_s=3.0, weights_s=1.0, steps_s=40.0)
    progress = replace(Progress.begin(1000.0), exposure=exposure)
    [told] = goodput_lines(progress, facts=Facts(name="a", run_dir=str(tmp_path), config=CONFIG, flops_per_token=1))
    assert told == (
        "  waits          10.0% of the steps for sums of gradients and gathered weights; "
        "a backward hides 25.0% of the sums' time"
    )


@pytest.mark.parametrize(
    ("turns", "says_so", "step"),
    [(None, True, None), (20, False, 5), (0, False, 0)],
)
def test_a_run_that_is_over_says_after_which_step_it_goes_on(tmp_path, turns: int | None, says_so: bool, step):
    known = [Progress.begin(1000.0)]
    for turn in trained(RunDirectory(path=tmp_path))[:turns]:
        known.append(known[-1].after(turn))
    assert resume_step_of(known[-1], said_so=says_so) == step


def test_status_of_a_lost_run_says_what_to_type(tmp_path):
    run_dir = RunDirectory(path=tmp_path / "my run")
    trained(run_dir)
    told = str(status_of(run_dir, now=2000.0)).splitlines()[-1]
    assert told == f"to resume: raymega train '{run_dir.config}'   (goes on after step 20)"


def test_status_names_standbys_and_nodes_that_are_to_be_left(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    turns = trained(run_dir)
    state = first_state(epoch=1)
    outlook = Outlook(draining=(Drain(node="9aa07c3e11d0ff", by_t=1012.0, cause="SIGTERM"),))
    state = with_story(state, replace(state.story, outlook=outlook))
    plan = next(turn.decision.state.plan for turn in turns)
    seats = tuple(Seat(worker=f"w{number}", node="4c1f02aa91b3ff", device=number) for number in range(5))
    progress = replace(Progress.begin(1000.0), state=state, plan=plan, seats=seats)
    assert standbys_of(progress) == {"w4": "4c1f02aa91b3ff"}
    assert draining_of(progress, now=1000.0) == {"9aa07c3e11d0ff": 12.0}
    status = status_of(run_dir, now=turns[-1].t)
    assert (status.standbys, status.draining) == ({}, {}), "a run that is over has none"
    told = str(replace(status, standbys=standbys_of(progress), draining=draining_of(progress, now=1000.0)))
    assert "standing by: w4 on 4c1f02aa91b3\nto be left: 9aa07c3e11d0 within 12 s\n" in told
