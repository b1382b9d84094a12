"""A worker of a real run kills itself where the config says, and nothing is lost."""

import shutil

import pytest

from tests.end_to_end.client import Client

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
