"""However a foreground run ends, nothing of it is left, and it can be resumed from what it says."""

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


def test_sigterm_and_ctrl_c_save_at_the_next_step_leave_nothing_and_say_how_to_resume(start: Start):
    client = start()
    client.wait_for_step(3)
    client.terminate()
    assert client.end() == 75, client.said()
    assert client.left_within(0.0) == []
    reached = client.steps()
    assert client.checkpoints() == [reached]
    assert f"raymega train {client.run_dir.config}   (goes on after step {reached})" in client.said()
    resumed = start()
    resumed.wait_for_step(reached + 3)
    resumed.interrupt()
    assert resumed.end() == 130, resumed.said()
    assert resumed.left_within(0.0) == []
    assert resumed.checkpoints()[-1] == resumed.steps()
    assert f"training goes on after step {reached} of" in resumed.output.read_text()
    assert f"raymega train {client.run_dir.config}   (goes on after step {resumed.steps()})" in resumed.said()


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
