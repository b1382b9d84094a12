"""Leases: who hears nothing ends itself, whatever became of the others."""

import os

import pytest
import ray

from raymega.driver.client import RunHandle
from raymega.errors import ClusterError, ConfigError
from raymega.worker.ray_actor import EXIT_ORPHANED, OrphanLease
from tests.driver.following import Following
from tests.driver.rig import Rig
from tests.waiting import await_end


def followed(run: RunHandle) -> Following:
    return Following(lambda _: run.news())


def pid_of(run: RunHandle) -> int:
    return ray.get(run._actor.__ray_call__.remote(lambda _: os.getpid()))


def test_a_lease_that_has_lapsed_ends_the_process_before_it_can_be_renewed():
    ends: list[int] = []
    lease = OrphanLease(limit_s=-1.0, birth_grace_s=0.0, end=ends.append)
    lease.renew()
    assert ends == [EXIT_ORPHANED]


def test_a_lease_that_is_renewed_goes_on():
    ends: list[int] = []
    lease = OrphanLease(limit_s=60.0, birth_grace_s=0.0, end=ends.append)
    lease.renew()
    assert lease.check() > 59.0
    assert ends == []


@pytest.mark.ray
def test_workers_end_themselves_when_their_controller_is_killed(rig: Rig):
    run = RunHandle.begin(rig.launch(dp=2, steps=100_000, lease_s=1.0, orphan_lease_s=3.0))
    following = followed(run)
    following.until_step(5)
    workers = [rig.pid("w0"), rig.pid("w1")]
    ray.kill(run._actor, no_restart=True)  # and nobody takes its place
    with pytest.raises(ClusterError, match="controller of run"):
        following.end()
    assert max(await_end(pid, limit_s=6.0) for pid in workers) > 1.0
    run.close()


@pytest.mark.ray
def test_a_run_whose_owner_is_silent_saves_and_ends_itself(rig: Rig):
    run = RunHandle.begin(rig.launch(dp=2, steps=100_000, owner_lease_s=3.0))
    followed(run).until_step(5)
    await_end(pid_of(run), limit_s=40.0)
    assert [path.name for path in rig.run_dir.checkpoints.glob("step-*/manifest.json")] == ["manifest.json"]
    assert '"event": "StopAsked"' in rig.run_dir.events.read_text()


@pytest.mark.ray
def test_a_second_run_of_a_live_name_is_refused_and_the_first_goes_on(rig: Rig):
    run = RunHandle.begin(rig.launch(dp=1, steps=100_000))
    following = followed(run)
    following.until_step(2)
    with pytest.raises(ConfigError, match="is alive on this cluster"):
        RunHandle.begin(rig.launch(dp=1))
    following.until_step(10)
    run.stop(("interrupt", None))
    assert following.end().exit_code == 130
    run.close()
