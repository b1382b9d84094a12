"""A run on a cluster of two nodes that loses one."""

from pathlib import Path

import pytest

from tests.programs import told_by


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_uses_every_node_and_goes_on_without_one_that_is_gone(tmp_path: Path):
    told, _ = told_by("tests.driver.two_nodes", tmp_path, limit_s=280.0)
    assert told["nodes"] == 2
    assert told["noticed_s"] < 5.0
    assert (told["exit_code"], told["steps"], told["left"]) == (0, 40, [])
    assert "needs 3" in told["refused"]
    assert "2 on 2 nodes" in told["refused"]
