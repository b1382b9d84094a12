"""The reaper ends what carries its mark once its client is gone, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

from raymega.driver.cluster import reaper
from raymega.driver.records.lock import RunLock
from tests.driver.rig import is_alive
from tests.waiting import eventually

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def started(mark: str | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(SLEEP, env={**os.environ, **(reaper.marks_of(mark) if mark else {})})


def watching(mark: str, *paths: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", reaper.__file__, mark, *map(str, paths)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def test_it_ends_what_is_marked_and_removes_the_paths_when_the_pipe_closes(tmp_path: Path):
    home, lock = tmp_path / "home", tmp_path / "LOCK"
    (home / "session").mkdir(parents=True)
    lock.write_text("x")
    marked, other = started("m1"), started("m2")
    watcher = watching("m1", home, lock, tmp_path / "never-made")
    assert is_alive(marked.pid)
    watcher.communicate(timeout=30)
    assert watcher.returncode == 0
    assert marked.wait(timeout=5) == -9
    assert is_alive(other.pid)
    assert list(tmp_path.iterdir()) == []
    other.kill()
    other.wait()


def test_it_waits_as_long_as_its_client_lives():
    marked = started("m3")
    eventually(lambda: reaper.marked("m3") == [marked.pid], limit_s=10)
    watcher = watching("m3")
    assert marked.poll() is None
    assert watcher.poll() is None
    marked.kill()
    marked.wait()
    watcher.communicate(timeout=30)


def test_the_lock_of_a_run_stays_with_whoever_has_taken_it_meanwhile(tmp_path: Path):
    lock = tmp_path / "LOCK"
    next_one = RunLock.acquire(lock, controller="client of demo")
    reaper.remove([str(lock)])
    assert lock.exists()
    gone = subprocess.Popen(SLEEP)
    next_one.leave_to(gone.pid, within_s=60.0)
    gone.kill()
    assert os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT) is not None
    reaper.remove([str(lock)])
    assert not lock.exists(), "its owner has ended, though nobody has collected it yet"
    gone.wait()
