"""A run that is driven from Python by others than have launched it: found, asked, and ended; in a Ray of its own."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

import raymega
from raymega.driver.records.lock import read_owner
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ClusterError, StateError
from raymega.notebook.run import Run
from tests.notebook.driving import TINY
from tests.programs import told_by
from tests.waiting import eventually

LIMIT_S, END_LIMIT_S = 240.0, 60.0
LAUNCHER = """
import json, sys, threading, raymega
print("keeper", raymega.launch(json.loads(sys.argv[1]), background=True).keeper.pid, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here: Path) -> Iterator[Run]:
    """A run in the background whose launching process was killed; it ends with the test, and leaves nothing."""
    words = [sys.executable, "-c", LAUNCHER, json.dumps(TINY)]
    launcher = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert launcher.stdout is not None
    told = next(line for line in launcher.stdout if line.startswith("keeper"))
    keeper = psutil.Process(int(told.split()[1]))
    launcher.kill()
    assert launcher.wait(timeout=END_LIMIT_S) == -signal.SIGKILL
    found = Run.at(RunDirectory(path=here / "runs" / "tiny"))
    assert not found.is_over(), "it is only starting"
    try:
        eventually(lambda: found.committed >= 2 or found.is_over(), limit_s=LIMIT_S, look_s=0.2)
        yield found
    finally:
        family = keeper.children(recursive=True) if keeper.is_running() else []
        if keeper.is_running():
            keeper.terminate()
        left = psutil.wait_procs([keeper, *family], timeout=END_LIMIT_S)[1]
        for process in left:
            process.kill()
    assert left == []
    assert not found.directory.lock.exists()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_run_in_the_background_is_driven_by_whoever_finds_it(run: Run, here: Path):
    there, ours = read_owner(run.directory.lock), ray.get_runtime_context().gcs_address
    assert there is not None
    assert there.ray is not None
    two = f"lives in the Ray at {there.ray.address}, and this process is connected to another, {ours};"
    with pytest.raises(
        ClusterError, match=f"{re.escape(two)}.*from another process, as by `raymega stop {run.directory.path}`"
    ):
        raymega.attach("tiny").pause()
    told, _ = told_by("tests.notebook.driving", here, "tiny", limit_s=LIMIT_S)
    assert told["steps"] == run.committed > 40


def test_an_unknown_run_is_refused_with_what_there_is(here: Path):
    with pytest.raises(StateError, match="nope is no run"):
        raymega.attach("nope")
