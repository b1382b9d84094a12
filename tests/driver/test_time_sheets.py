import pytest

from raymega.driver.records.time_sheets import TimeSheets
from raymega.driver.records.worker_times import all_of, by_worker, goodput_of, read_times, worker_lines
from raymega.worker.time_sheet import Spent


def test_each_worker_has_all_seconds_from_when_it_was_asked_for(tmp_path):
    file = tmp_path / "workers.json"
    sheets = TimeSheets(file, began_t=1000.0)
    sheets.asked(("w0", "w1"), t=1002.0)
    for worker in ("w0", "w1"):
        sheets.heard(worker, Spent(born_t=5.0, seconds={"start": 1.0}, in_hand={"useful": 2.0}), t=1006.0)
    sheets.asked(("w2",), t=1006.0)
    sheets.heard("w0", Spent(born_t=5.0, seconds={"start": 1.0, "useful": 5.0}, in_hand={"data": 1.0}), t=1010.0)
    sheets.heard("w2", Spent(born_t=8.0, seconds={"idle": 2.0}), t=1010.0)
    sheets.lost("w1", t=1007.5)
    sheets.stopped(("w0", "w2"), t=1011.0)
    sheets.write(t=1011.0)
    found = by_worker(read_times(file))
    assert {worker: {name: s for name, s in seconds.items() if s} for worker, seconds in found.items()} == {
        "w0": {"start": 4.0, "useful": 5.0, "data": 1.0, "idle": 1.0},
        "w1": {"start": 4.0, "replay": 2.0, "detect": 1.5},
        "w2": {"start": 2.0, "idle": 3.0},
    }
    assert goodput_of(all_of(found)) == pytest.approx(6.0 / 23.5)
    assert [line.split()[0] for line in worker_lines(found)] == ["worker", "w0", "w1", "w2"]


def test_whoever_takes_over_goes_on_with_the_same_workers_and_keeps_those_that_are_gone(tmp_path):
    file = tmp_path / "workers.json"
    first = TimeSheets(file, began_t=1000.0)
    first.asked(("w0", "w1"), t=1000.0)
    for worker in ("w0", "w1"):
        first.heard(worker, Spent(born_t=5.0, seconds={"useful": 2.0}), t=1003.0)
    first.lost("w1", t=1003.0)
    first.write(t=1003.0)
    second = TimeSheets(file, began_t=1000.0)
    second.heard("w0", Spent(born_t=5.0, seconds={"useful": 9.0}), t=1010.0)
    second.write(t=1010.0)
    for time in read_times(file):
        assert sum(time.seconds.values()) == pytest.approx(time.until_t - time.from_t)
    assert by_worker(read_times(file))["w0"]["useful"] == 9.0


def test_a_pulse_that_was_long_on_its_way_adds_no_seconds(tmp_path):
    file = tmp_path / "workers.json"
    sheets = TimeSheets(file, began_t=1000.0)
    sheets.asked(("w0",), t=1000.0)
    for own_s, late_s in ((1.0, 0.5), (3.0, 0.0), (5.0, 0.25)):
        sheets.heard("w0", Spent(born_t=5.0, seconds={"idle": own_s}), t=1002.0 + own_s + late_s)
    sheets.write(t=1008.0)
    assert by_worker(read_times(file))["w0"]["start"] == 2.0


def test_a_pulse_says_now_and_then_that_the_file_is_due(tmp_path):
    sheets = TimeSheets(tmp_path / "workers.json", began_t=1000.0)
    assert [sheets.heard("w0", Spent(born_t=5.0), t=t) for t in (1001.0, 1006.0)] == [False, True]
    sheets.write(t=1006.0)
    assert not sheets.heard("w0", Spent(born_t=5.0), t=1007.0)
