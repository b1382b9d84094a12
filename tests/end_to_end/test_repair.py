"""Workers of a run of real processes, and its controller, are killed or stopped, and nothing is lost."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raymega.driver.records.json_lines import read_lines
from tests.end_to_end.client import Client
from tests.end_to_end.here import run_here

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STEPS = 200
SETS = (
    "parallelism.pipeline_model_parallel_size=2", f"training.steps={STEPS}", "run.seed=7",
    "training.eval_every=50", "training.eval_samples=64", "checkpoint.every_steps=40",
)  # fmt: skip
STALL, KILL = "stall stage=1 replica=1 step=20", "kill stage=0 replica=0 step=60 action=B0"
STALLED_LIMIT_S, KILLED_LIMIT_S = 10.0, 5.0


@pytest.fixture(scope="module")
def undisturbed(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What every step of a run without losses gives."""
    return list(read_lines(run_here(tmp_path_factory.mktemp("calm"), *SETS).metrics))


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


def test_workers_that_stop_and_die_in_mid_run_cost_no_step_and_change_no_loss(undisturbed, client_of):
    client = client_of(f"elastic.chaos={json.dumps([STALL, KILL])}")
    assert client.end() == 0, client.said()
    check_same(client.records(), undisturbed)
    stalled, killed = client.events("StepRepaired")  # by then each stage has lost a team, of different replicas
    t_of = {record["step"]: record["t"] for record in client.records()}
    seconds = [repaired["t"] - t_of[repaired["step"] - 1] for repaired in (stalled, killed)]
    print("w3 stalled, w0 killed: seconds between the commits of the step before and of that step", seconds)
    assert (stalled["step"], killed["step"]) == (20, 60)
    assert seconds[0] < STALLED_LIMIT_S
    assert seconds[1] < KILLED_LIMIT_S
    assert client.events()[-1]["steps_lost"] == 0
    assert "is repaired" in client.output.read_text()


def test_a_controller_that_is_killed_in_each_phase_and_with_a_worker_costs_no_step(undisturbed, client_of):
    phases = enumerate(("compute", "reduce", "decide", "apply"), start=1)
    client = client_of(
        f"elastic.chaos={json.dumps([f'kill controller step={20 * n} phase={phase}' for n, phase in phases])}"
    )
    client.wait_for_step(20)
    worker = client.worker("w3")
    client.wait_for_step(100)
    client.controller().kill()
    worker.kill()
    lost_t = time.time()
    assert client.end() == 0, client.said()
    check_same(client.records(), undisturbed)
    taken, (*_, repaired) = client.events("ControllerTakenOver"), client.events("StepRepaired")
    commits = [min(record["t"] for record in client.records() if record["t"] > event["t"]) for event in taken]
    print("seconds to the next commit", [t - e["t"] + e["silent_s"] for t, e in zip(commits, taken, strict=True)])
    print(f"controller and w3: next commit {repaired['t'] - lost_t:.3f} s later", repaired)
    assert [event["epoch"] for event in taken] == [2, 3, 4, 5, 6]
    assert repaired["t"] > lost_t
    assert client.events()[-1]["steps_lost"] == 0
