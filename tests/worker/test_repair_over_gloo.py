"""Over real sockets too, teams that live keep what they did: nothing that was sent is lost when a shard leaves."""

import pytest

from raymega.comm.gloo import GlooFabric
from raymega.comm.store import RendezvousStore
from raymega.worker import step
from raymega.worker.interface import Assignment, WorkerSettings
from tests.worker.killing import KillWorld, kill_world
from tests.worker.rig import LIMIT_S

LAYOUT = (2, 2, 2)


@pytest.fixture(scope="module")
def undisturbed() -> KillWorld:
    with kill_world(LAYOUT) as world:
        world.look()
        return world


@pytest.mark.parametrize(
    ("victim", "at"),
    [("w0", "0B0"), ("w1", "0F2"), ("w2", "1B0"), ("w3", "1F2"), ("w3", "1B2"), ("w6", "compute sum 1")],
)
def test_only_the_team_of_the_dead_does_its_work_again(victim, at, undisturbed, monkeypatch):
    monkeypatch.setattr(step, "BUCKET_BYTES", 512)
    store = RendezvousStore.open()

    def wires(*, assignment: Assignment, settings: WorkerSettings) -> GlooFabric:
        return GlooFabric.connect(
            store.address, me=settings.worker, generation=assignment.generation, timeout_s=LIMIT_S
        )  # fmt: skip

    with kill_world(LAYOUT, wires=wires) as world:
        world.reports, world.undisturbed = undisturbed.reports, undisturbed.undisturbed
        world.dies = lambda worker: world.run.workers[worker].orders.stop()  # cuts its sockets, as a death does
        world.begin()
        world.strike(world.plan, victim, at=at)
        world.check(world.go_on(world.recover(world.plan, dead={victim}), dead={victim}))
    store.close()
