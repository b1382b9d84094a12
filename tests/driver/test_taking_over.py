"""A controller takes over from one that was killed, or stopped and woken, over fake workers in real actors.

These commit each at its own pace and have no ledgers, so steps may be rewound; that real workers lose none is shown in
`tests/end_to_end/test_repair.py`. Here each step is written once, no worker is replaced, and the old one is refused.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import ray

from raymega.control.events import ControllerTakenOver, StepCommitted
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.controller import RemoteController
from raymega.driver.launch import controller_name
from raymega.driver.news import News
from raymega.driver.records.journal import read_head
from raymega.driver.records.lock import read_owner
from raymega.driver.records.tenure import journals
from tests.driver.conftest import actors_of
from tests.driver.following import Following
from tests.driver.rig import Rig, Run
from tests.waiting import await_end, eventually

pytestmark = pytest.mark.ray
ORPHAN_S = 30.0  # far above what a busy machine takes to start another controller


def lines(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def steps(rig: Rig) -> list[int]:
    return [line["step"] for line in lines(rig.run_dir.metrics)] if rig.run_dir.metrics.exists() else []


@dataclass(frozen=True, kw_only=True)
class First:
    """The controller that begins a run, an actor, and what it has told."""

    pid: int
    told: Following


def news_of(actor) -> Callable[[int], News]:
    def news(since: int) -> News:
        try:
            return ray.get(actor.news.remote(since, 0.5))
        except ray.exceptions.ActorUnavailableError:  # another one takes its place
            return News(turns=(), ended=None, t=time.time())

    return news


@pytest.fixture
def first(rig: Rig) -> Iterator[Callable[..., First]]:
    """Starts a controller in an actor, which is not started again when it dies."""
    made = []

    def start(launch, *, max_restarts: int = 0) -> First:
        actor = RemoteController.options(
            name=controller_name(launch.name), namespace=NAMESPACE, lifetime="detached", max_restarts=max_restarts
        ).remote(launch)
        made.append(actor)
        ray.get(actor.start.remote())
        return First(pid=read_owner(rig.run_dir.lock).pid, told=Following(news_of(actor)))

    yield start
    for actor in made:
        ray.kill(actor, no_restart=True)


def test_a_killed_controller_is_replaced_and_no_step_is_written_twice(rig: Rig, first):
    launch = rig.launch(dp=2, pp=2, steps=100, owner_lease_s=None, every_steps=40, orphan_lease_s=ORPHAN_S)
    with rig.held(after=50):
        begun = first(launch)
        begun.told.until_step(50)
        workers = rig.living_workers()
        os.kill(begun.pid, signal.SIGKILL)
        await_end(begun.pid)
    run = Run.taking_over(launch)
    assert run.end().exit_code == 0
    assert steps(rig) == list(range(1, 101))
    assert len(workers) == len(list(rig.run_dir.path.glob("pid-*"))) == 4, "no worker is replaced"
    (taken,) = [line for line in lines(rig.run_dir.events) if line["event"] == "ControllerTakenOver"]
    assert (taken["epoch"], taken["state"]) == (2, "Settling")
    assert [turn.seq for turn in run.turns] == list(range(1, len(run.turns) + 1)), "a client misses no turn"
    published = [line["step"] for line in lines(rig.run_dir.events) if line["event"] == "CheckpointPublished"]
    assert published == [40, 80, 100]


def test_a_controller_and_a_worker_that_are_killed_together(rig: Rig, first):
    launch = rig.launch(dp=2, steps=40, owner_lease_s=None, every_steps=5, orphan_lease_s=ORPHAN_S)
    with rig.held(after=20):
        begun = first(launch)
        begun.told.until_step(20)
        for process in (begun.pid, rig.pid("w1")):
            os.kill(process, signal.SIGKILL)
    run = Run.taking_over(launch)
    assert run.end().exit_code == 0
    assert steps(rig) == list(range(1, 41))
    assert any("gone when the controller was replaced" in line["reason"] for line in lines(rig.run_dir.events))


def test_a_controller_that_was_stopped_replaced_and_woken_is_refused_and_ends_itself(rig: Rig, first):
    launch = rig.launch(dp=2, steps=100, owner_lease_s=None, orphan_lease_s=ORPHAN_S)
    with rig.held(after=20):
        begun = first(launch)
        begun.told.until_step(20)
        os.kill(begun.pid, signal.SIGSTOP)
    run = Run.taking_over(launch)
    run.until(lambda turn: isinstance(turn.event, StepCommitted) and turn.event.generation > 2_000_000)
    os.kill(begun.pid, signal.SIGCONT)
    await_end(begun.pid, limit_s=10.0)
    assert run.end().exit_code == 0
    assert steps(rig) == list(range(1, 101))
    assert read_head(journals(rig.run_dir.journal)[1]).takes_over.epoch == 1
    assert len(list(rig.run_dir.path.glob("pid-*"))) == 2, "the woken one has ended no worker"


def test_ray_starts_a_killed_controller_again_and_none_that_has_ended(rig: Rig, first):
    launch = rig.launch(dp=2, steps=60, owner_lease_s=20.0, orphan_lease_s=ORPHAN_S)
    with rig.held(after=10):
        begun = first(launch, max_restarts=5)
        begun.told.until_step(10)
        os.kill(begun.pid, signal.SIGKILL)
    killed_at = time.time()
    assert (begun.told.end().exit_code, steps(rig)) == (0, list(range(1, 61)))
    seen = begun.told.turns
    assert [turn.seq for turn in seen] == list(range(1, len(seen) + 1)), "its owner misses no turn"
    (taken,) = [turn for turn in seen if isinstance(turn.event, ControllerTakenOver)]
    committed = next(turn.t for turn in seen if turn.seq > taken.seq and isinstance(turn.event, StepCommitted))
    print(f"taken over {taken.t - killed_at:.2f} s after the kill, next commit after {committed - killed_at:.2f} s")
    eventually(lambda: actors_of(launch.name) == [], limit_s=30.0)  # its owner has gone with the end
