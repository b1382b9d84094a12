"""What a worker is told while its libraries still load: it comes to it once there is one, and ends nothing."""

import os
from types import SimpleNamespace

import pytest

from raymega.config.schema import Config
from raymega.worker.interface import WorkerSettings
from raymega.worker.ray_actor import WorkerActor

ORDER = "kill step=4"


class Keeps:
    """A worker that keeps what it is told."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.told: list[object] = []

    def chaos(self, orders: tuple[str, ...]) -> None:
        self.told.append(orders)

    def abort(self, generation: int, lost: tuple[str, ...]) -> None:
        self.told.append(generation)


@pytest.fixture
def actor(monkeypatch) -> WorkerActor:
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "n0"))
    monkeypatch.setattr("raymega.worker.ray_actor.OrphanLease.watch", lambda lease: None)  # it would end this process
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.setenv(variable, os.environ.get(variable, "1"))
    settings = WorkerSettings(worker="w1", config=Config(), run_dir="", checkpoint_dir="", device="cpu")
    return WorkerActor(settings, factory=f"{__name__}:Keeps", threads=1, orphan_lease_s=600.0)


@pytest.mark.parametrize(
    ("order", "said", "told"), [("chaos", ((ORDER,),), (ORDER,)), ("abort", (7, ("w0",)), 7), ("beat", (), None)]
)
def test_what_comes_before_there_is_a_worker_comes_to_it(actor: WorkerActor, order: str, said: tuple, told: object):
    getattr(actor, order)(1, *said)
    assert actor.build(1).worker == "w1"
    assert actor._worker.told == ([] if told is None else [told])


def test_what_comes_after_comes_at_once_and_once(actor: WorkerActor):
    actor.build(1)
    actor.chaos(1, (ORDER,))
    actor.build(1)
    assert actor._worker.told == [(ORDER,)]
