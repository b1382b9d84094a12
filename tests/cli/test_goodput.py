from dataclasses import replace

import pytest

from raymega.control.outlook import Drain, Outlook
from raymega.control.states import Seat, first_state, with_story
from raymega.driver.progress import Progress
from raymega.driver.run_dir import RunDirectory
from raymega.driver.run_status import draining_of, resume_step_of, standbys_of, status_of
from tests.driver.test_accounting import trained


def test_status_says_where_the_worker_seconds_of_a_run_went(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    turns = trained(run_dir, kill_once={13: 2})
    status = status_of(run_dir, now=turns[-1].t)
    assert status.steps_lost == 2
    assert sum(status.worker_s.values()) == pytest.approx(4 * (turns[-1].t - 1000.0))
    assert f"goodput {status.goodput:.1%} of " in str(status)
    assert "2 steps lost" in str(status)


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
