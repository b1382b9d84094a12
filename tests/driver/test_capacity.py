"""What a run lacks is asked for once, and taken back with the run."""

from raymega.config.schema import Config
from raymega.driver.cluster.capacity import Bundles, Capacity, bundles_of, request_bundles
from tests.driver.test_small import row


def config(**elastic: int) -> Config:
    axes = {"data_parallel_size": 2, "pipeline_model_parallel_size": 2}
    return Config.model_validate({"parallelism": axes, "run": {"cpus_per_worker": 2}, "elastic": elastic})


def test_a_run_asks_for_all_of_its_workers_each_time_a_node_is_missing_and_takes_it_back():
    asked: list[Bundles] = []
    capacity = Capacity(config(), device="cpu", request=asked.append)
    whole, half = [row("1", CPU=4.0), row("2", CPU=4.0)], [row("1", CPU=4.0), row("2", CPU=4.0, alive=False)]
    for rows in (whole, half, half, whole, whole, half):
        capacity.follow(rows)
    assert asked == [({"CPU": 2.0},) * 4] * 2
    capacity.close()
    assert asked[-1] == ()


def test_a_run_that_lacked_nothing_has_nothing_to_take_back():
    asked: list[Bundles] = []
    capacity = Capacity(config(), device="cpu", request=asked.append)
    capacity.follow([row("1", CPU=16.0)])
    capacity.close()
    assert asked == []


def test_workers_with_gpus_and_standbys_are_counted():
    assert bundles_of(config(standbys=1), device="cuda") == ({"CPU": 2.0, "GPU": 1.0},) * 5


def test_rays_autoscaler_is_told_in_its_own_words(monkeypatch):
    told: list[dict] = []
    monkeypatch.setattr("ray.autoscaler.sdk.request_resources", lambda **words: told.append(words))
    request_bundles(({"CPU": 1.0},))
    request_bundles(())
    assert told == [{"bundles": [{"CPU": 1.0}]}, {"bundles": []}]


def test_an_autoscaler_that_cannot_be_asked_ends_no_run(monkeypatch, capsys):
    def fails(**words: object) -> None:
        raise RuntimeError("no head")

    monkeypatch.setattr("ray.autoscaler.sdk.request_resources", fails)
    request_bundles(())
    assert "could not be asked for 0 bundles: no head" in capsys.readouterr().out
