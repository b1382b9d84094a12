"""What the controller hears of its workers, without Ray."""

import os
import queue
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from raymega.driver.hands.listening import Hearing, Listener

LIMIT_S = 10.0
Told = queue.SimpleQueue[tuple[str, str, float]]


class Silent:
    """A call that is never answered."""

    def future(self) -> "Future[Any]":
        return Future()


@contextmanager
def listening(told: Told) -> Iterator[Listener]:
    hearing = Hearing(
        pulse=lambda pulse: None, born=lambda worker: None, lost=lambda *said: told.put(said),
        failed=lambda worker, error: None, broke=lambda error: None,
    )  # fmt: skip
    listener = Listener(hearing, born=lambda birth: None, epoch=1, lease_s=60.0, start_limit_s=60.0)
    listener.add("w0", handle=None, build=Silent())
    yield listener
    listener.close()


def test_the_kernel_says_that_a_process_has_ended_though_ray_says_nothing():
    told: Told = queue.SimpleQueue()
    with listening(told) as listener, subprocess.Popen(["sleep", "60"]) as process:
        pidfd = os.pidfd_open(process.pid)
        listener.mind("w0", pidfd=pidfd)
        os.close(pidfd)
        process.kill()
        worker, cause, silent_s = told.get(timeout=LIMIT_S)
    assert (worker, cause) == ("w0", "its process died")
    assert 0 <= silent_s < LIMIT_S


def test_nothing_is_told_of_a_worker_that_was_let_go():
    told: Told = queue.SimpleQueue()
    with listening(told) as listener, subprocess.Popen(["sleep", "60"]) as process:
        pidfd = os.pidfd_open(process.pid)
        listener.mind("w0", pidfd=pidfd)
        listener.add("w1", handle=None, build=Silent())
        listener.drop("w0")
        listener.mind("w1", pidfd=pidfd)
        os.close(pidfd)
        process.kill()
        assert told.get(timeout=LIMIT_S)[0] == "w1"
    assert told.empty()
