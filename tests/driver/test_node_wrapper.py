"""A node's SIGTERM reaches Ray only once the node is left, or when there is no time."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

from raymega.driver.cluster.node_wrapper import ENDING_S, leave_here, run_node
from raymega.driver.cluster.ray_private import Raylet, raylet_below
from raymega.errors import ConfigError
from tests.waiting import eventually

RAY = ["bash", "-c", "kill -{signal} $PPID; exec sleep 60"]  # it is told to end as soon as it is up


UP = "print('up', flush=True); import time; time.sleep(60)"
RAYLET = f'exec -a raylet {sys.executable} -c "{UP}" --node_id=4c1f --gcs-address=host:1'
APART = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]


def told(name: str) -> list[str]:
    return [word.format(signal=name) for word in RAY]


@pytest.fixture
def raylet() -> Iterator[Raylet]:
    others = set(psutil.Process().children())
    process = subprocess.Popen(["sleep", "60"])
    yield Raylet(process=psutil.Process(process.pid), node="n1", gcs_address="host:1")
    process.kill()
    process.wait()
    assert set(psutil.Process().children()) <= others
    assert [thread.name for thread in threading.enumerate() if thread.name == "ended"] == []


def drained(raylet: Raylet, then: Callable[[], None], notices: list[str]) -> Callable[..., str]:
    def drain(node: str, *, gcs_address: str, by_t: float, reason: str) -> str:
        notices.append(f"{node} at {gcs_address}: {reason}")
        then()
        return ""

    return drain


def test_ray_ends_as_soon_as_the_node_is_left(raylet, capsys):
    notices: list[str] = []
    drain = drained(raylet, raylet.process.kill, notices)
    code = run_node(told("TERM"), deadline_s=30.0, raylet_of=lambda pid: raylet, drain=drain)
    assert (code, notices) == (0, ["n1 at host:1: SIGTERM"])
    assert "the node is left after 0." in capsys.readouterr().err


def test_ray_ends_before_the_deadline_though_the_node_is_in_use(raylet, capsys):
    drain = drained(raylet, lambda: None, [])
    assert run_node(told("TERM"), deadline_s=ENDING_S + 0.1, raylet_of=lambda pid: raylet, drain=drain) == 143
    assert "the deadline is near" in capsys.readouterr().err


def test_a_second_sigterm_does_not_wait(raylet, capsys):
    drain = drained(raylet, lambda: os.kill(os.getpid(), signal.SIGTERM), [])
    assert run_node(told("TERM"), deadline_s=3600.0, raylet_of=lambda pid: raylet, drain=drain) == 143
    assert "a second time" in capsys.readouterr().err


def test_a_hook_waits_until_the_node_is_left_or_the_deadline_is_near(raylet, capsys):
    notices: list[str] = []
    waits = drained(raylet, lambda: None, notices)
    assert leave_here(deadline_s=ENDING_S + 0.1, raylet_of=lambda pid: raylet, drain=waits) == 143
    goes = drained(raylet, raylet.process.kill, notices)
    assert leave_here(deadline_s=3600.0, raylet_of=lambda pid: raylet, drain=goes) == 0
    assert notices == ["n1 at host:1: a hook"] * 2
    assert leave_here(deadline_s=3600.0, raylet_of=lambda pid: None) == 143
    assert "no raylet runs here" in capsys.readouterr().err


def test_a_ctrl_c_ends_ray_at_once_and_in_order(capfd):
    traps = "trap 'echo in order; kill %1; exit' TERM; trap 'echo aborted; kill %1; exit' INT"
    assert run_node(["bash", "-c", f"{traps}; sleep 60 & kill -INT $PPID; wait"], deadline_s=3600.0) == 130
    assert capfd.readouterr().out == "in order\n"


def test_a_node_whose_ray_cannot_be_told_ends_at_once(raylet, capsys):
    code = run_node(told("TERM"), deadline_s=3600.0, raylet_of=lambda pid: raylet, drain=lambda *a, **b: "no such call")
    assert (code, "no such call: Ray ends now" in capsys.readouterr().err) == (143, True)


def test_a_hook_that_cannot_tell_ray_ends_and_says_that_ray_does_not(raylet, capsys):
    code = leave_here(deadline_s=3600.0, raylet_of=lambda pid: raylet, drain=lambda *a, **b: "no such call")
    assert (code, raylet.process.is_running()) == (143, True)
    assert "no such call: nothing more is waited for, Ray stays as it is" in capsys.readouterr().err


def test_a_ray_that_does_not_answer_holds_up_neither_the_deadline_nor_a_second_sigterm(raylet, capsys):
    answers = threading.Event()
    silent = drained(raylet, answers.wait, [])
    assert run_node(told("TERM"), deadline_s=ENDING_S + 0.1, raylet_of=lambda pid: raylet, drain=silent) == 143
    assert "Ray at host:1 does not answer and the deadline is near" in capsys.readouterr().err
    impatient = drained(raylet, lambda: (os.kill(os.getpid(), signal.SIGTERM), answers.wait()), [])
    assert run_node(told("TERM"), deadline_s=3600.0, raylet_of=lambda pid: raylet, drain=impatient) == 143
    answers.set()


def test_a_command_that_ends_by_itself_has_the_last_word():
    assert run_node(["bash", "-c", "exit 7"], deadline_s=30.0) == 7


def test_a_command_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no-such-ray cannot be run: No such file"):
        run_node(["no-such-ray", "start"], deadline_s=30.0)


def test_the_raylet_below_a_process_says_which_node_it_is():
    child = subprocess.Popen(["bash", "-c", f"({RAYLET}) & wait"], start_new_session=True)
    try:
        eventually(lambda: raylet_below(child.pid) is not None, limit_s=20.0)
        found = raylet_below(child.pid)
        assert (found.node, found.gcs_address) == ("4c1f", "host:1")
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert raylet_below(child.pid) is None


def test_a_raylet_in_another_network_is_not_this_machines():
    if subprocess.run([*APART, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine permits no other network")
    child = subprocess.Popen(
        [*APART, "bash", "-c", f"({RAYLET}) & wait"], start_new_session=True, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"up\n"
        assert raylet_below(os.getpid()) is None
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
