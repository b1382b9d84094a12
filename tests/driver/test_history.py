"""Who had which place when: told from the journals alone, over all launches of a run."""

from pathlib import Path

import pytest

from raymega.driver.records.accounting import history_of
from raymega.driver.records.run_dir import RunDirectory
from tests.driver.test_accounting import trained
from tests.report.told_runs import gone_on, told_run


def test_a_calm_run_has_a_place_for_each_worker_from_the_start_to_the_end(tmp_path: Path):
    run = RunDirectory(path=tmp_path)
    turns = trained(run)
    history = history_of(run)
    assert sorted(stay.worker for stay in history.stays) == ["w0", "w1", "w2", "w3"]
    assert {stay.words for stay in history.stays} >= {"stage 0, replica 0", "stage 1, replica 1"}
    assert history.up_s == pytest.approx(turns[-1].t - 1000.0)
    assert all(stay.end_s == pytest.approx(history.up_s) for stay in history.stays)
    assert [doing.what for doing in history.doings] == ["starting", "training", "saving"]


def test_a_lost_worker_leaves_its_place_and_another_takes_it(tmp_path: Path):
    stays = history_of(told_run(tmp_path, kill_once={13: 2})).stays
    (lost,) = [stay for stay in stays if stay.lost]
    (taken,) = [stay for stay in stays if stay.words == lost.words and stay is not lost]
    assert (lost.worker, taken.worker != "w2") == ("w2", True)
    assert lost.end_s <= taken.begin_s


def test_the_time_between_two_launches_is_left_out(tmp_path: Path):
    history = history_of(gone_on(tmp_path))
    first, second = history.launches
    assert (second.step, second.at_s) == (20, pytest.approx(first.until_t - 1000.0))
    assert history.at_s(9001.0) == pytest.approx(second.at_s + 1.0)
    assert history.up_s < 9000.0 - 1000.0
    assert all(before.end_s <= second.at_s or before.begin_s >= second.at_s for before in history.stays)


def test_what_the_run_did_covers_all_its_time_without_a_gap(tmp_path: Path):
    history = history_of(told_run(tmp_path, kill_once={13: 2}, break_once={7}))
    assert {"repairing", "training"} <= {doing.what for doing in history.doings}
    ends = [0.0, *(doing.end_s for doing in history.doings)]
    assert [doing.begin_s for doing in history.doings] == pytest.approx(ends[:-1])


def test_of_a_run_that_has_not_begun_there_is_no_history(tmp_path: Path):
    run = RunDirectory(path=tmp_path)
    trained(run)
    for file in run.journal.iterdir():
        file.unlink()
    history = history_of(run)
    assert (history.stays, history.up_s, history.at_s(5.0), history.progress) == ((), 0.0, 0.0, None)
