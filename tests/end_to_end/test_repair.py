"""A worker of a run of real processes, or its controller, is killed or stopped, and nothing is lost."""

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raymega.driver.json_lines import read_lines
from tests.end_to_end.client import Client

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STEPS = 150
SETS = (
    "parallelism.pipeline_model_parallel_size=2", f"training.steps={STEPS}", "run.seed=7",
    "training.eval_every=50", "training.eval_samples=64", "checkpoint.every_steps=40",
)  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What every step of a run without losses gives."""
    client = Client(tmp_path_factory.mktemp("calm"), *SETS)
    assert client.end() == 0, client.said()
    shutil.rmtree(client.temp)
    return client.records()


@pytest.fixture
def client_of(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Starts the one client of a test, with more settings."""
    made: list[Client] = []

    def start(*sets: str) -> Client:
        made.append(Client(tmp_path, *SETS, *sets))
        return made[-1]

    yield start
    for client in made:
        client.process.kill()
        client.process.wait()
        assert client.left_within(10.0) == []
        shutil.rmtree(client.temp)


def check_same(records: list[dict[str, Any]], undisturbed: list[dict[str, Any]]) -> None:
    """Each step once, and with the losses of a run without losses."""
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    for kind in ("loss", "grad_norm", "val_loss"):
        expected = {record["step"]: record[kind] for record in undisturbed if record.get(kind) is not None}
        got = {record["step"]: record[kind] for record in records if record.get(kind) is not None}
        assert got == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("victim", "how", "limit_s"),
    [("w3", signal.SIGKILL, 5.0), ("w0", signal.SIGKILL, 5.0), ("w2", signal.SIGSTOP, 10.0)],
)
def test_a_worker_lost_in_mid_run_costs_no_step_and_changes_no_loss(undisturbed, client_of, victim, how, limit_s):
    client = client_of()
    client.wait_for_step(20)
    lost_at = time.time()
    client.worker(victim).send_signal(how)
    assert client.end() == 0, client.said()
    check_same(client.records(), undisturbed)
    events = list(read_lines(client.run_dir.path / "events.jsonl"))
    (repaired,) = [event for event in events if event["event"] == "StepRepaired"]
    print(f"{victim} {how.name}: next commit {repaired['t'] - lost_at:.3f} s later", repaired)
    assert repaired["t"] - lost_at < limit_s
    assert events[-1]["steps_lost"] == 0
    assert "is repaired" in client.output.read_text()


def test_a_controller_that_is_killed_in_each_phase_of_a_step_costs_no_step(undisturbed, client_of):
    phases = enumerate(("compute", "reduce", "decide", "apply"), start=1)
    client = client_of(
        f"elastic.chaos={json.dumps([f'kill controller step={20 * n} phase={phase}' for n, phase in phases])}"
    )
    assert client.end() == 0, client.said()
    check_same(client.records(), undisturbed)
    events = list(read_lines(client.run_dir.path / "events.jsonl"))
    taken = [event for event in events if event["event"] == "ControllerTakenOver"]
    commits = [min(record["t"] for record in client.records() if record["t"] > event["t"]) for event in taken]
    print("seconds to the next commit", [t - e["t"] + e["silent_s"] for t, e in zip(commits, taken, strict=True)])
    assert ([event["epoch"] for event in taken], events[-1]["steps_lost"]) == ([2, 3, 4, 5], 0)


def test_a_controller_and_a_worker_that_are_killed_together_cost_no_step(undisturbed, client_of):
    client = client_of()
    client.wait_for_step(20)
    client.controller().kill()
    client.worker("w3").kill()
    lost_at = time.time()
    assert client.end() == 0, client.said()
    check_same(client.records(), undisturbed)
    events = list(read_lines(client.run_dir.path / "events.jsonl"))
    (repaired,) = [event for event in events if event["event"] == "StepRepaired"]
    print(f"controller and w3: next commit {repaired['t'] - lost_at:.3f} s later", repaired)
    assert events[-1]["steps_lost"] == 0
