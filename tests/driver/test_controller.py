"""A controller in this process over fake workers in real actors."""

import json
import os
import signal
import time

import pytest

from raymega.control.events import GenerationLeft, StepCommitted, WorkerLost, WorkersReady
from raymega.driver.controller import Controller
from raymega.driver.records.worker_times import read_times
from tests.driver.rig import Rig, Run

pytestmark = pytest.mark.ray


def test_a_run_commits_its_steps_saves_and_leaves_nothing(rig: Rig):
    run = Run.begin(rig.launch(dp=2, pp=2, steps=12))
    ended = run.end()
    assert (ended.exit_code, ended.reason) == (0, "all 12 steps are committed and saved")
    assert [turn.event.step for turn in run.of(StepCommitted)] == list(range(1, 13))
    lines = [json.loads(line) for line in rig.run_dir.metrics.read_text().splitlines()]
    assert [(line["step"], line["first_sample"]) for line in lines] == [(k, 8 * (k - 1)) for k in range(1, 13)]
    assert (rig.run_dir.checkpoints / "step-12" / "manifest.json").exists()


def test_a_killed_worker_wakes_the_others_within_a_second_and_the_run_goes_on(rig: Rig):
    launch = rig.launch(dp=2, steps=40, every_steps=5)
    with rig.held(after=20):
        run = Run.begin(launch)
        run.until_step(20)
        killed_t = time.time()
        os.kill(rig.pid("w1"), signal.SIGKILL)
        lost = run.until(lambda turn: isinstance(turn.event, WorkerLost))
        left = run.until(lambda turn: isinstance(turn.event, GenerationLeft))
    assert lost.event.cause == "its process died"
    assert left.event.worker == "w0"
    assert left.t - killed_t < 1.0
    print("WOKEN", lost.t - killed_t, left.t - killed_t)
    assert run.end().exit_code == 0
    assert len(run.of(WorkersReady)) == 2
    lines = [json.loads(line) for line in rig.run_dir.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 41))
    times = {worker.worker: worker for worker in read_times(rig.run_dir.workers)}
    for worker, end_t in (("w0", run.turns[-1].t), ("w1", lost.t)):
        lived_s = times[worker].until_t - times[worker].from_t
        assert sum(times[worker].seconds.values()) == pytest.approx(lived_s, rel=0.005)
        assert (times[worker].from_t, times[worker].until_t) == pytest.approx((launch.began_t, end_t), abs=0.2)


def test_a_silent_worker_is_lost_after_its_lease_and_its_process_is_ended(rig: Rig):
    with rig.held(after=10):
        run = Run.begin(rig.launch(dp=2, steps=20, every_steps=5, lease_s=1.0))
        run.until_step(10)
        os.kill(rig.pid("w1"), signal.SIGSTOP)
        lost = run.until(lambda turn: isinstance(turn.event, WorkerLost))
    assert lost.event.worker == "w1"
    assert 1.0 <= lost.event.silent_s < 2.0
    assert run.end().exit_code == 0


def test_a_stop_ends_the_run_at_a_shared_boundary_and_saves_there(rig: Rig):
    run = Run.begin(rig.launch(dp=2, steps=1000))
    run.until_step(3)
    run.controller.stop("interrupt", None)
    ended = run.end()
    last = run.of(StepCommitted)[-1].event.step
    assert ended.exit_code == 130
    assert f"saved at step {last}" in ended.reason
    assert (rig.run_dir.checkpoints / f"step-{last}" / "manifest.json").exists()


def test_a_stop_that_comes_before_the_run_has_begun_is_not_lost(rig: Rig):
    controller = Controller(rig.launch(dp=2, steps=100_000))
    controller.stop("interrupt", None)
    controller.start()
    ended = Run(controller).end()
    assert (ended.exit_code, ended.reason) == (130, "Ctrl-C: stopped; nothing is lost at step 0")
    assert rig.living_workers() == []


def test_an_error_in_a_worker_is_not_tried_again(rig: Rig):
    run = Run.begin(rig.launch(dp=2, factory="tests.driver.fake_worker:no_such_thing"))
    ended = run.end()
    assert ended.exit_code == 1
    assert "no_such_thing" in ended.reason
    assert "AttributeError" in ended.details
