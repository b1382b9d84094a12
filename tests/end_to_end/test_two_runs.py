"""Two runs share a cluster by priority: one shrinks for the other, and grows when that is over; nothing restarts."""

from pathlib import Path

import pytest

from tests.programs import told_by


@pytest.mark.ray
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_run_gives_devices_to_one_that_goes_first_and_has_them_back_afterwards(tmp_path: Path):
    told, said = told_by("tests.end_to_end.two_runs", tmp_path, limit_s=580.0)
    assert (told["shrunk"]["after"], told["grown"]["after"]) == ("dp=1 tp=1 pp=1", "dp=2 tp=1 pp=1")
    assert len(told["stayed"]) == 1, "who has a part still is a process that had one"
    assert (told["high"], told["low"], told["lost"]) == (0, 0, [0, 0])
    assert "elastic.priority 0: 1 of 2 devices; beside it high (priority 5) 1" in said
