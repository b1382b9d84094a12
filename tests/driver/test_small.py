"""Small decisions of the driver, each without Ray."""

import random
from pathlib import Path

import pytest

from raymega.config.schema import Config
from raymega.driver.client import controller_node
from raymega.driver.cluster.in_a_job import JOB, STOP_WAIT, brings_modules, leaves_after_s
from raymega.driver.cluster.node_watch import WITHOUT_DEADLINE_S, addresses_of, cluster_of, device_of, notices
from raymega.driver.cluster.ray_private import HEAD_RESOURCE
from raymega.driver.controller import ended_by
from raymega.driver.hands.translate import failed
from raymega.driver.names import draw_name
from raymega.driver.paths import refuse_relative
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.train import refuse_if_too_small_for
from raymega.errors import ConfigError, DataError, PlanError, RaymegaBug, StateError
from raymega.plan.cluster import MARKET_LABEL


def row(node: str, *, alive: bool = True, host: str = "elsewhere", **resources: float) -> dict[str, object]:
    return {
        "NodeID": node, "Alive": alive, "Resources": resources, "Labels": {}, "NodeManagerHostname": host,
        "NodeManagerAddress": f"10.0.0.{node}",
    }  # fmt: skip


def test_a_node_offers_as_many_devices_as_its_cores_or_gpus_make():
    rows = [row("1", CPU=4.0), row("2", CPU=8.0, GPU=2.0), row("3", alive=False, CPU=64.0)]
    assert [(n.id, n.devices) for n in cluster_of(rows, device="cpu", cpus_per_worker=3).nodes] == [("2", 2), ("1", 1)]
    assert [(n.id, n.devices) for n in cluster_of(rows, device="cuda", cpus_per_worker=1).nodes] == [("2", 2), ("1", 0)]


def test_auto_means_cuda_only_where_every_node_has_it():
    config = Config()
    assert device_of(config, [row("1", CPU=4.0, GPU=1.0)]) == "cuda"
    assert device_of(config, [row("1", CPU=4.0, GPU=1.0), row("2", CPU=4.0)]) == "cpu"


def test_workers_of_other_hosts_are_reached_by_the_nodes_addresses():
    assert addresses_of([row("1", CPU=1.0)]) == {"1": "10.0.0.1"}


@pytest.mark.parametrize(
    ("run", "axes", "words"),
    [
        ({}, {"data_parallel_size": 5}, "needs 5"),
        ({"device": "cuda"}, {}, "0 GPU"),
        ({"cpus_per_worker": 8}, {}, "4 CPU"),
    ],
)
def test_what_a_cluster_can_never_give_is_refused_with_what_there_is(run, axes, words):
    config = Config.model_validate({"run": {"device": "cpu", **run}, "parallelism": axes})
    with pytest.raises(PlanError, match=words) as refusal:
        refuse_if_too_small_for([row("1", CPU=4.0)], config)
    assert refusal.value.exit_code == 4


@pytest.mark.parametrize("key", ["run.dir", "run.init_from", "checkpoint.path"])
def test_a_relative_path_is_refused_for_a_job(key: str):
    section, name = key.split(".")
    config = Config.model_validate({"run": {"dir": "/runs"}, "checkpoint": {"path": "s3://bucket/x"}})
    refuse_relative(config)
    part = getattr(config, section).model_copy(update={name: "near/by"})
    with pytest.raises(ConfigError, match=rf"{key}: near/by is relative.*such as /"):
        refuse_relative(config.model_copy(update={section: part}))


def test_a_relative_data_path_is_refused_for_a_job():
    config = Config.model_validate({"run": {"dir": "/runs"}, "data": {"train": "my/tokens"}})
    with pytest.raises(DataError, match=r"data\.train: my/tokens is relative"):
        refuse_relative(config)


def test_only_the_entry_point_of_a_job_must_be_gone_in_time(monkeypatch):
    assert leaves_after_s() is None
    monkeypatch.setenv(JOB, '{"runtime_env": {"working_dir": "x"}}')
    assert (leaves_after_s(), brings_modules()) == (1.5, False)
    monkeypatch.setenv(STOP_WAIT, "60")
    monkeypatch.setenv(JOB, '{"runtime_env": {"py_modules": ["x"]}}')
    assert (leaves_after_s(), brings_modules()) == (58.5, True)
    monkeypatch.setenv(JOB, '{"runtime_env": null}')
    assert not brings_modules()


def test_a_controller_is_beside_its_client_unless_that_node_may_be_taken_back():
    head, spot, stays = row("9", **{HEAD_RESOURCE: 1.0}), row("1") | {"Labels": {MARKET_LABEL: "spot"}}, row("2")
    assert controller_node([head, spot, stays], here="2", draining=()) == "2"
    assert controller_node([head, spot, stays], here="1", draining=()) == "9"
    assert controller_node([spot, stays], here="1", draining=()) == "2"
    assert controller_node([head, stays], here="2", draining={"2"}) == "9"
    assert controller_node([spot, row("3", alive=False)], here="1", draining=()) == "1"


def test_a_drawn_name_is_that_of_no_other_run(tmp_path: Path):
    taken = {draw_name(tmp_path, dice=random.Random(1))}
    (tmp_path / taken.pop()).mkdir()
    first = next(iter(tmp_path.iterdir())).name
    assert draw_name(tmp_path, dice=random.Random(1)) != first


def test_an_error_keeps_its_exit_code_and_any_other_is_a_bug():
    assert failed("w1", StateError("torn"), generation=3).exit_code == 5
    told = failed("w1", KeyError("x"), generation=3)
    assert (told.exit_code, told.error) == (1, "KeyError: 'x'")


def test_a_notice_of_the_cluster_is_told_once_and_again_when_its_deadline_changes():
    first = notices({"1": 1030.0, "2": 0.0}, seen={}, now=1000.0)
    assert [(notice.node, notice.by_t, notice.request) for notice in first] == [
        ("1", 1030.0, None), ("2", 1000.0 + WITHOUT_DEADLINE_S, None),
    ]  # fmt: skip
    assert notices({"1": 1030.0, "2": 0.0}, seen={"1": 1030.0, "2": 0.0}, now=1001.0) == ()
    assert [notice.by_t for notice in notices({"1": 1010.0}, seen={"1": 1030.0}, now=1001.0)] == [1010.0]


def test_a_controller_that_cannot_go_on_tells_one_error_and_how_the_run_does(tmp_path: Path):
    ended = ended_by(StateError("the disk is full"), run_dir=RunDirectory(path=tmp_path))
    assert (ended.exit_code, ended.reason) == (StateError.exit_code, "the disk is full")
    assert ended.details.splitlines() == [
        "raymega: StateError: the disk is full", f"to resume: raymega train {tmp_path / 'config.yaml'}",
    ]  # fmt: skip


def test_a_controller_that_is_wrong_itself_shows_where(tmp_path: Path):
    def wrong() -> None:
        raise KeyError("w3")

    with pytest.raises(KeyError) as caught:
        wrong()
    ended = ended_by(caught.value, run_dir=RunDirectory(path=tmp_path))
    assert (ended.exit_code, ended.reason) == (RaymegaBug.exit_code, "KeyError: 'w3'")
    assert "in wrong" in ended.details
