import pytest

from raymega.cli.run_status import status_of
from raymega.driver.run_dir import RunDirectory
from tests.driver.test_accounting import trained


def test_status_says_where_the_worker_seconds_of_a_run_went(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    turns = trained(run_dir, kill_once={13: 2})
    status = status_of(run_dir, now=turns[-1].t)
    assert status.steps_lost == 2
    assert sum(status.worker_s.values()) == pytest.approx(4 * (turns[-1].t - 1000.0))
    assert f"goodput {status.goodput:.1%} of " in str(status)
    assert "2 steps lost" in str(status)
