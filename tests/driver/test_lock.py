import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from raymega.driver.records import lock as lock_module
from raymega.driver.records.lock import Owner, RayAt, RunLock, read_owner
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError, StateError
from tests.waiting import eventually

HOLD = (
    "import sys, pathlib\n"
    "from raymega.driver.records.lock import RunLock\n"
    "lock = RunLock.acquire(pathlib.Path(sys.argv[1]), controller='raymega:other')\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
    "lock.release()\n"
)


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "LOCK")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_run_is_refused_and_told_who_is_there(tmp_path, other):
    with pytest.raises(ConfigError, match=f"in use by raymega:other \\(process {other.pid} on "):
        RunLock.acquire(tmp_path / "LOCK", controller="raymega:mine")


def test_a_released_lock_leaves_no_file(tmp_path, other):
    other.communicate(b"", timeout=30)
    assert not (tmp_path / "LOCK").exists()


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path, other):
    other.kill()
    other.wait(timeout=30)
    assert (tmp_path / "LOCK").exists()
    lock = RunLock.acquire(tmp_path / "LOCK", controller="raymega:mine")
    assert read_owner(tmp_path / "LOCK").controller == "raymega:mine"
    lock.release()
    assert read_owner(tmp_path / "LOCK") is None


def elsewhere(until: float) -> Owner:
    return replace(Owner.of(psutil.Process(), controller="raymega:far", until=until), space="another boot", host="m2")


def test_a_process_that_cannot_be_seen_from_here_counts_as_alive_until_its_lock_lapses(tmp_path):
    file = tmp_path / "LOCK"
    file.write_text(json.dumps(asdict(elsewhere(time.time() + 60))))
    with pytest.raises(ConfigError, match="raymega:far"):
        RunLock.acquire(file, controller="raymega:mine")
    file.write_text(json.dumps(asdict(elsewhere(time.time() - 1))))
    RunLock.acquire(file, controller="raymega:mine").release()


def test_a_lock_of_no_process_or_for_ever_is_damaged(tmp_path):
    file, owner = tmp_path / "LOCK", Owner.of(psutil.Process(), controller="raymega:far", until=time.time() + 60)
    for odd in (replace(owner, pid=-1), replace(owner, until=float("nan")), replace(owner, until=float("inf"))):
        file.write_text(json.dumps(asdict(odd)))
        assert read_owner(file) is None


@pytest.mark.parametrize("text", [b"{", b"3", b"\xff\x00", b'{"pid": 3}', b'{"host": "m", "pid": 1e999}', b"[" * 99999])
def test_a_damaged_lock_counts_as_lapsed_and_its_living_owner_writes_it_again(tmp_path, monkeypatch, text: bytes):
    file = tmp_path / "LOCK"
    file.write_bytes(text)
    assert read_owner(file) is None
    monkeypatch.setattr(lock_module, "LEASE_S", 0.2)
    lock = RunLock.acquire(file, controller="raymega:mine")
    file.write_bytes(text)
    eventually(lambda: read_owner(file) is not None)
    lock.release()
    assert not file.exists()


def test_a_held_lock_is_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "LEASE_S", 0.2)
    lock = RunLock.acquire(tmp_path / "LOCK", controller="raymega:mine")
    first = read_owner(tmp_path / "LOCK")
    eventually(lambda: (owner := read_owner(tmp_path / "LOCK")) is not None and owner.until > first.until)
    lock.release()


def test_a_run_that_goes_from_hand_to_hand_is_nobodys_at_no_time(tmp_path, reads):
    file, me = tmp_path / "LOCK", os.getpid()
    launcher = RunLock.acquire(file, controller="client of mine")
    with reads(file) as seen:
        launcher.leave_to(me, within_s=60.0)
        keeper = RunLock.acquire(file, controller="client of mine", heir_of=launcher.id)
        launcher.release()
        controller = RunLock.acquire(file, controller="raymega:mine", ray=RayAt(address="a:1"), heir_of=keeper.id)
        keeper.release()
        eventually(lambda: len(seen) > 100)
        assert read_owner(file).ray == RayAt(address="a:1")
    controller.release()
    assert None not in seen
    assert not file.exists()


@pytest.fixture
def reads():
    """Another thread that reads who holds a lock, again and again; gives what it has read."""

    @contextmanager
    def reading(file: Path) -> Iterator[list[str | None]]:
        seen: list[str | None] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                owner = read_owner(file)
                seen.append(None if owner is None or owner.is_over(time.time()) else owner.controller)

        thread = threading.Thread(target=read)
        thread.start()
        yield seen
        done.set()
        thread.join()

    return reading


@pytest.mark.parametrize("heir_of", [None, "", "another"])
def test_only_the_heir_takes_a_lock_that_is_held_and_not_a_second_launcher_of_the_same_process(tmp_path, heir_of):
    file = tmp_path / "LOCK"
    first = RunLock.acquire(file, controller="client of mine")
    with pytest.raises(ConfigError, match="in use by client of mine"):
        RunLock.acquire(file, controller="client of mine", heir_of=heir_of)
    with pytest.raises(ConfigError, match="in use by client of mine"):
        RunLock.inherit(file, controller="raymega:mine", heir_of=heir_of)
    RunLock.inherit(file, controller="raymega:mine", heir_of=first.id).release()
    file.write_text(json.dumps({**asdict(elsewhere(time.time() + 60)), "id": ""}))  # of a version that knew no ids
    with pytest.raises(ConfigError, match="in use by raymega:far"):
        RunLock.acquire(file, controller="client of mine", heir_of=heir_of or None)
    first.release()
    assert read_owner(file).controller == "raymega:far"


def test_a_lock_that_is_left_to_a_process_is_nobodys_as_soon_as_that_has_ended(tmp_path):
    file = tmp_path / "LOCK"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as keeper:
        lock = RunLock.acquire(file, controller="client of mine")
        lock.leave_to(keeper.pid, within_s=60.0)
        lock.release()
        owner = read_owner(file)
        assert (owner.pid, owner.is_over(time.time()), owner.is_over(time.time() + 61)) == (keeper.pid, False, True)
        keeper.stdin.close()
        eventually(lambda: owner.is_over(time.time()))  # though nobody has collected it
    RunLock.acquire(file, controller="client of mine").release()


def test_a_controller_whose_process_has_ended_may_be_replaced_until_its_lock_lapses(tmp_path):
    with subprocess.Popen(["true"]) as ended:
        owner = Owner.of(psutil.Process(ended.pid), controller="raymega:mine", until=time.time() + 60)
    led = replace(owner, ray=RayAt(address="a:1", session="s1"))
    assert (owner.is_gone(time.time()), owner.is_over(time.time())) == (True, True)
    assert (led.is_gone(time.time()), led.is_over(time.time()), led.is_over(led.until)) == (True, False, True)


def test_a_directory_without_a_config_is_no_run(tmp_path):
    with pytest.raises(StateError, match=r"has no config\.yaml"):
        RunDirectory(path=tmp_path).read_config()


@pytest.mark.parametrize("text", ["run: [", "run: {colour: red}", "training: {steps: 0}"])
def test_a_damaged_config_of_a_run_is_told_with_its_place(tmp_path, text: str):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml:1"):
        RunDirectory(path=tmp_path).read_config()
