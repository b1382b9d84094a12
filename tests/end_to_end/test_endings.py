"""However a foreground run ends, nothing of it is left, and it can be resumed from what it says."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.client import Client

Start = Callable[..., Client]

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts clients of one run directory; none outlives the test."""
    started: list[Client] = []

    def begin(*sets: str) -> Client:
        started.append(Client(tmp_path, *sets))
        return started[-1]

    yield begin
    for client in started:
        client.process.kill()
        client.process.wait()
    assert [line for client in started for line in client.left_within(10.0)] == []
    for client in started:
        client.temp.rmdir()


def test_ctrl_c_saves_at_the_next_step_leaves_nothing_and_says_how_to_resume(start: Start):
    client = start()
    client.wait_for_step(3)
    client.interrupt()
    assert client.end() == 130, client.said()
    assert client.left_within(0.0) == []
    assert client.checkpoints() == [client.steps()]
    assert f"raymega train {client.run_dir.config}" in client.said()


def test_a_resumed_run_goes_on_after_sigterm_where_it_was_saved(start: Start):
    client = start()
    client.wait_for_step(3)
    client.process.send_signal(signal.SIGTERM)
    assert client.end() == 75, client.said()
    assert client.left_within(0.0) == []
    reached = client.steps()
    assert client.checkpoints() == [reached]
    resumed = start(f"training.steps={reached + 5}")
    assert resumed.end() == 0, resumed.said()
    assert resumed.steps() == reached + 5
    assert f"training goes on after step {reached} of {reached + 5}" in resumed.said()


def test_a_client_that_is_killed_leaves_nothing(start: Start):
    client = start("checkpoint.every_steps=2")
    client.wait_for_checkpoint()  # it is published beside the steps, not with them
    client.process.kill()
    client.process.wait()
    assert client.left_within(10.0) == []
    assert client.checkpoints() != []


def test_a_run_that_fails_leaves_nothing_and_tells_its_exit_code(start: Start):
    client = start("training.lr=1e38", "training.clip_grad=0", "training.max_nonfinite_steps=1")
    assert client.end() == 6, client.said()
    assert client.left_within(0.0) == []
    assert "not finite" in client.said()
