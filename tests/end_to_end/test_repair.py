"""A worker is killed in the middle of a run of real processes, and nothing is lost."""

import shutil
import time
from pathlib import Path

import pytest

from raymega.driver.json_lines import read_lines
from tests.end_to_end.client import Client

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STEPS = 150
SETS = (
    "parallelism.pipeline_model_parallel_size=2", f"training.steps={STEPS}", "run.seed=7",
    "training.eval_every=50", "checkpoint.every_steps=40",
)  # fmt: skip


@pytest.mark.parametrize("victim", ["w3", "w0"])
def test_a_worker_killed_in_mid_run_costs_no_step_and_changes_no_loss(tmp_path: Path, victim: str):
    calm, hurt = tmp_path / "calm", tmp_path / "hurt"
    calm.mkdir()
    hurt.mkdir()
    undisturbed = Client(calm, *SETS)
    assert undisturbed.end() == 0, undisturbed.said()
    client = Client(hurt, *SETS)
    try:
        client.wait_for_step(20)
        killed_at = time.time()
        client.worker(victim).kill()
        assert client.end() == 0, client.said()
    finally:
        client.process.kill()
        client.process.wait()
    assert client.left_within(10.0) == []
    assert [record["step"] for record in client.records()] == list(range(1, STEPS + 1))
    for kind in ("loss", "grad_norm", "val_loss"):
        expected = [record[kind] for record in undisturbed.records() if record.get(kind) is not None]
        assert [r[kind] for r in client.records() if r.get(kind) is not None] == pytest.approx(expected, rel=1e-5)
    events = list(read_lines(client.run_dir.path / "events.jsonl"))
    repaired = [event for event in events if event["event"] == "StepRepaired"]
    assert len(repaired) == 1, events
    assert events[-1]["steps_lost"] == 0
    assert "is repaired" in client.output.read_text()
    print(f"{victim}: next commit {repaired[0]['t'] - killed_at:.3f} s after the kill", repaired[0])
    for one in (client, undisturbed):
        shutil.rmtree(one.temp)
