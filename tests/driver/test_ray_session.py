"""A local Ray that does not come up is put away and tried again, and told in the end."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray._private import services, utils, worker

from raymega.driver.cluster import ray_session as ray_session_module
from raymega.driver.cluster.connection import Connection
from raymega.driver.cluster.ray_private import daemons_apart, signals_left_alone
from raymega.driver.cluster.ray_session import LONGEST_SOCKET, OURS, RAYS, STARTS, ray_here, ray_session, why_gone
from raymega.driver.records.lock import RayAt
from raymega.errors import ClusterError, PlanError

LIMIT_S = 20.0


@pytest.mark.parametrize("extra", [0, 1])
def test_a_folder_whose_name_is_too_long_for_sockets_is_passed_over(extra, homes, monkeypatch):
    room = LONGEST_SOCKET - len(OURS + RAYS.format(pid=os.getpid()))
    folder = Path(tempfile.mkdtemp(prefix="x" * (room + extra - len("/tmp/") - 8), dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(ray, "init", starts(homes, failing=0))
    with ray_session(cpus=1):
        assert homes[0].parent == (Path("/tmp") if extra else folder)
    folder.rmdir()


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands in for Ray: where each start took place; those that `monkeypatch` lets fail do."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    made: list[Path] = []
    there = SimpleNamespace(gcs_address="host:1", get_session_name=lambda: "session_1")
    monkeypatch.setattr(ray_session_module, "OF_THIS_PROCESS", Connection(here=ray_here))
    monkeypatch.setattr(ray, "is_initialized", lambda: made != [])
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: there)
    return made


def starts(homes: list[Path], *, failing: int):
    def init(**options: object) -> None:
        assert [home for home in homes if home.exists()] == [], "the one before is put away"
        homes.append(Path(str(options["_temp_dir"])))
        if len(homes) <= failing:
            raise Exception("The current node timed out during startup.")

    return init


def test_a_ray_that_is_slow_to_come_up_is_tried_again(homes, monkeypatch):
    monkeypatch.setattr(ray, "init", starts(homes, failing=STARTS - 1))
    with ray_session(cpus=1) as session:
        assert session.owned
        assert (len(homes), homes[-1].exists()) == (STARTS, True)
    assert not homes[-1].exists()


def test_a_ray_that_never_comes_up_is_told_with_a_way_out(homes, monkeypatch):
    monkeypatch.setattr(ray, "init", starts(homes, failing=STARTS))
    with pytest.raises(ClusterError, match=r"did not come up: The current node timed out.*set RAY_ADDRESS"):
        ray_session(cpus=1).__enter__()
    assert (len(homes), [home for home in homes if home.exists()]) == (STARTS, [])


def test_sessions_of_two_threads_share_a_local_ray_and_the_last_ends_it(homes, monkeypatch):
    monkeypatch.setattr(ray, "init", starts(homes, failing=0))
    joined, over = threading.Event(), threading.Event()

    def other() -> None:
        with ray_session(cpus=1) as session:
            assert not session.owned
            joined.set()
            over.wait(LIMIT_S)

    thread = threading.Thread(target=other)
    with ray_session(cpus=1) as session:
        assert session.owned
        thread.start()
        assert joined.wait(LIMIT_S)
    assert [home.exists() for home in homes] == [True]
    over.set()
    thread.join(LIMIT_S)
    assert [home.exists() for home in homes] == [False]


def test_more_workers_than_any_machine_has_processes_are_refused(homes, monkeypatch):
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("a Ray was started"))
    with pytest.raises(PlanError, match=r"1,000,000,000,000,002 CPUs.*fewer run\.devices"):
        ray_session(cpus=10**15 + 2).__enter__()


def test_a_fault_of_this_program_is_no_matter_of_how_busy_the_machine_is(homes, monkeypatch):
    monkeypatch.setattr(ray, "init", lambda **options: homes.append(options["no_such_option"]))
    with pytest.raises(KeyError, match="no_such_option"):
        ray_session(cpus=1).__enter__()


def test_a_signal_to_the_group_of_a_client_does_not_reach_the_daemons_of_its_ray(homes, monkeypatch):
    groups = []

    def init(**options: object) -> None:
        homes.append(Path(str(options["_temp_dir"])))
        command = [sys.executable, "-c", "import os; print(os.getpgrp() == os.getpid())"]
        with services.ConsolePopen(command, stdout=subprocess.PIPE, text=True) as daemon:
            groups.append(daemon.communicate()[0].strip())

    monkeypatch.setattr(ray, "init", init)
    as_ray_has_it = services.ConsolePopen
    with ray_session(cpus=1):
        assert (groups, services.ConsolePopen) == (["True"], as_ray_has_it)


def test_a_ray_that_starts_its_daemons_by_another_name_is_started_all_the_same(monkeypatch):
    monkeypatch.delattr(services, "ConsolePopen")
    with daemons_apart():
        assert not {"ConsolePopen"} & set(vars(services))


def test_whoever_answers_signals_in_a_process_still_does_once_it_is_connected_and_hears_nothing_of_it(caplog):
    def mine(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    as_ray_has_it = utils.set_sigterm_handler
    with signals_left_alone():
        utils.set_sigterm_handler(signal.SIG_IGN)
        worker.logger.warning("SIGTERM handler is not set because current thread is not the main thread.")
        worker.logger.warning("another thing")
    assert (signal.signal(signal.SIGTERM, before), utils.set_sigterm_handler) == (mine, as_ray_has_it)
    assert [record.getMessage() for record in caplog.records] == ["another thing"]


def test_a_ray_that_has_ended_while_this_process_is_connected_to_it_is_known_at_once(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    monkeypatch.setattr(ray_session_module, "ray_here", lambda: RayAt(address=address))
    assert why_gone().startswith(f"nobody answers at {address}")
    monkeypatch.setattr(ray_session_module.client, "is_connected", lambda: True)
    assert why_gone() == "", "an address within its cluster says nothing to a client"
    monkeypatch.undo()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert why_gone() == ""
