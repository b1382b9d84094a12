"""A worker of a run of real processes is killed or stopped, and nothing is lost."""

import shutil
import signal
import time
from collections.abc import Iterator
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
def client(tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path, *SETS)
    yield made
    made.process.kill()
    made.process.wait()
    assert made.left_within(10.0) == []
    shutil.rmtree(made.temp)


@pytest.mark.parametrize(
    ("victim", "how", "limit_s"),
    [("w3", signal.SIGKILL, 5.0), ("w0", signal.SIGKILL, 5.0), ("w2", signal.SIGSTOP, 10.0)],
)
def test_a_worker_lost_in_mid_run_costs_no_step_and_changes_no_loss(undisturbed, client, victim, how, limit_s):
    client.wait_for_step(20)
    lost_at = time.time()
    client.worker(victim).send_signal(how)
    assert client.end() == 0, client.said()
    assert [record["step"] for record in client.records()] == list(range(1, STEPS + 1))
    for kind in ("loss", "grad_norm", "val_loss"):
        expected = {record["step"]: record[kind] for record in undisturbed if record.get(kind) is not None}
        got = {record["step"]: record[kind] for record in client.records() if record.get(kind) is not None}
        assert got == pytest.approx(expected, rel=1e-5)
    events = list(read_lines(client.run_dir.path / "events.jsonl"))
    (repaired,) = [event for event in events if event["event"] == "StepRepaired"]
    print(f"{victim} {how.name}: next commit {repaired['t'] - lost_at:.3f} s later", repaired)
    assert repaired["t"] - lost_at < limit_s
    assert events[-1]["steps_lost"] == 0
    assert "is repaired" in client.output.read_text()


@pytest.mark.parametrize("victims", [("controller",), ("controller", "w3")])
def test_a_killed_controller_is_replaced_and_the_step_is_finished(undisturbed, client, victims):
    client.wait_for_step(20)
    lost_at = time.time()
    for victim in victims:
        (client.controller() if victim == "controller" else client.worker(victim)).kill()
    assert client.end() == 0, client.said()
    assert [record["step"] for record in client.records()] == list(range(1, STEPS + 1))
    for kind in ("loss", "grad_norm", "val_loss"):
        expected = {record["step"]: record[kind] for record in undisturbed if record.get(kind) is not None}
        got = {record["step"]: record[kind] for record in client.records() if record.get(kind) is not None}
        assert got == pytest.approx(expected, rel=1e-5)
    events = list(read_lines(client.run_dir.path / "events.jsonl"))
    (taken,) = [event for event in events if event["event"] == "ControllerTakenOver"]
    (repaired,) = [event for event in events if event["event"] == "StepRepaired"]
    print(f"{victims}: taken over {taken['t'] - lost_at:.2f} s later, next commit {repaired['t'] - lost_at:.2f} s")
    assert repaired["t"] - lost_at < 30.0
    assert events[-1]["steps_lost"] == 0
