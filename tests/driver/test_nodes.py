"""A run on a cluster of two nodes that loses one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.rooms import ROOT


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_uses_every_node_and_goes_on_without_one_that_is_gone(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.driver.two_nodes", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["nodes"] == 2
    assert told["noticed_s"] < 5.0
    assert (told["exit_code"], told["steps"], told["left"]) == (0, 40, [])
    assert "needs 3" in told["refused"]
    assert "2 on 2 nodes" in told["refused"]
