"""Faults that a config or a person asks for happen to a real run, each once, and cost it nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raymega.cli.replaying import retold
from tests.end_to_end.client import LIMIT_S, Client

ORDER = "kill stage=1 replica=0 step=20 phase=reduce"


@pytest.mark.ray
@pytest.mark.soak
def test_a_kill_that_the_config_asks_for_happens_once_and_costs_no_step(tmp_path):
    client = Client(
        tmp_path, "parallelism.pipeline_model_parallel_size=2", "training.steps=40", f"elastic.chaos=[{ORDER}]"
    )
    assert client.end() == 0, client.said()
    assert [record["step"] for record in client.records()] == list(range(1, 41))
    assert [event["step"] for event in client.events("StepRepaired")] == [20]
    (marker,) = (client.run_dir.path / "chaos").iterdir()
    assert marker.name == ORDER.replace(" ", ",")
    assert client.events()[-1]["steps_lost"] == 0
    assert client.left_within(10.0) == []
    shutil.rmtree(client.temp)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes, which can be filled without harm."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=8m", "raymega-test"]
    if subprocess.run(["mount", *options, str(disk)], check=False, capture_output=True).returncode:
        pytest.skip("no disk may be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.ray
@pytest.mark.soak
def test_a_full_disk_costs_the_checkpoints_of_its_time_and_no_step(tmp_path: Path, small_disk: Path):
    client = Client(
        tmp_path, "training.steps=400", f"checkpoint.path={small_disk / 'checkpoints'}", "checkpoint.every_steps=10",
        "elastic.chaos=[fill-disk stage=0 replica=0 step=35 for=2]",
    )  # fmt: skip
    assert client.end() == 0, client.said()
    assert [record["step"] for record in client.records()] == list(range(1, 401))
    events = client.events()
    given_up = [event["step"] for event in events if event["event"] == "SaveFailed"]
    published = [event["step"] for event in events if event["event"] == "CheckpointPublished"]
    print(f"given up {sorted(set(given_up))}, published {published}")
    assert given_up, "the disk was full"
    assert published[-1] == 400
    assert events[-1]["steps_lost"] == 0
    assert client.left_within(10.0) == []
    shutil.rmtree(client.temp)


TRACE = "t_s,n_nodes\n0,8\n300,7\n600,3\n1000,8\n1300,5\n1700,8\n"


@pytest.mark.ray
@pytest.mark.soak
def test_a_trace_takes_devices_from_a_live_run_and_gives_them_back(tmp_path: Path):
    client = Client(
        tmp_path, "parallelism.pipeline_model_parallel_size=2", "training.steps=2500", "elastic.copies_every=1",
        "elastic.steady_s=0", "elastic.max_restarts=20",
    )  # fmt: skip
    client.wait_for_step(20)
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    done = subprocess.run(
        [Path(sys.executable).parent / "raymega", "chaos", str(client.run_dir.path), "--trace", str(trace),
         "--speed", "100", "--least", "2"],
        capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, "TMPDIR": str(client.temp)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "5 changes of 8 nodes in 28.3 min, over its 6 devices: 6 leave and 6 come back within 17 s" in done.stdout
    assert client.end() == 0, client.said()
    assert [record["step"] for record in client.records()] == list(range(1, 2501))
    events = client.events()
    lost = [event for event in events if event["event"] == "WorkerLost"]
    print(f"{len(lost)} workers lost; {events[-1]['steps_lost']} steps done again")
    assert len(lost) >= 2  # two of the six devices hold nobody
    assert events[-1]["steps_lost"] <= len(lost), "a step at most for each, from copies"
    assert client.left_within(10.0) == []
    shutil.rmtree(client.temp)
    again = retold(client.run_dir, name="again").text
    assert again.count("run.chaos(without={0: ") == 3
    assert again.count("run.chaos(without={})") == 2, "twice it has all back"
