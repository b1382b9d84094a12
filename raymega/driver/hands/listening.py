"""Hears every worker: one pulse is always under way to each, and is answered as soon as there is news.

    build ----------> pulse --> pulse --> pulse ...            a worker's calls, one after the other
      |                 |
      | beats keep the  |   answered       the reports go on, the next pulse leaves
      | orphan lease    |   process ended  WorkerLost: of this node's the kernel says so at once, of others
      |                 |                  Ray, once three processes have passed it on
      |                 |   no answer      WorkerLost once the lease has lapsed
      |
      no birth within the limit            WorkerLost, naming the worker

Answers come as callbacks into one queue, read by one thread, so that a hundred workers cost no more than their own
calls. When this process itself was held up, the time it lost is added to every lease: a pause of the controller is
no silence of the workers.
"""

import os
import queue
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from raymega.driver.process.threads import Failed, start_thread
from raymega.plan.plan import WorkerId
from raymega.worker.interface import Pulse
from raymega.worker.ray_actor import Birth

TICK_S = 0.1
BEAT_S = 2.0
HELD_UP_S = 0.5  # a turn of the loop that took longer means that this process was held up


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """Who is told what. Each is called from the listening thread and must return at once."""

    pulse: Callable[[Pulse], None]
    born: Callable[[WorkerId], None]
    lost: Callable[[WorkerId, str, float], None]  # worker, cause, seconds of silence
    failed: Callable[[WorkerId, BaseException], None]  # a call raised in the worker's process
    broke: Failed  # the listening itself


@dataclass(slots=True, kw_only=True)
class _Ear:
    """What is known of one worker; belongs to the listening thread."""

    handle: Any  # Any: Ray's actor handles have no type
    deadline: float
    heard_at: float
    beat_at: float
    since: int = 0
    is_born: bool = False


_Answer = tuple[WorkerId, "Future[Any]", ray.ObjectRef | None]


class Listener:
    """Listens to workers until each is dropped or lost.

    Args:
        hearing: who is told.
        born: told of each worker that was built.
        epoch: of this controller; workers that listen to a newer one refuse.
        lease_s: silence after which a worker is lost.
        start_limit_s: how long a worker may take to be built.
    """

    def __init__(
        self, hearing: Hearing, *, born: Callable[[Birth], None], epoch: int, lease_s: float, start_limit_s: float
    ) -> None:
        self._born, self._epoch = born, epoch
        self._hearing, self._lease_s, self._start_limit_s = hearing, lease_s, start_limit_s
        self._wait_s = min(0.5, lease_s / 4)
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._ears: dict[WorkerId, _Ear] = {}
        self._closed = threading.Event()
        self._thread = start_thread(self._listen, name="listener", failed=hearing.broke)

    def add(self, worker: WorkerId, *, handle: Any, build: ray.ObjectRef) -> None:
        """Listen to a worker that is being built; from one that is built already, what it last said comes again."""
        now = time.monotonic()
        self._ears[worker] = _Ear(handle=handle, deadline=now + self._start_limit_s, heard_at=now, beat_at=now)
        self._expect(worker, build)

    def watch(self, worker: WorkerId, call: ray.ObjectRef) -> None:
        """Tell if `call`, which answers nothing, fails."""
        self._expect(worker, call)

    def mind(self, worker: WorkerId, *, pidfd: int) -> None:
        """Lose `worker` the moment its process ends; `pidfd` is the kernel's handle of it."""
        own = os.dup(pidfd)
        start_thread(lambda: self._see_end(worker, own), name=f"end-of-{worker}", failed=self._hearing.broke)

    def drop(self, worker: WorkerId) -> None:
        """Hear no more of `worker`. Idempotent."""
        self._ears.pop(worker, None)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _expect(self, worker: WorkerId, call: ray.ObjectRef) -> None:
        call.future().add_done_callback(lambda answer: self._answers.put((worker, answer, call)))

    def _see_end(self, worker: WorkerId, pidfd: int) -> None:
        process = select.poll()
        process.register(pidfd, select.POLLIN)
        process.poll()
        os.close(pidfd)
        answer: Future[Any] = Future()
        answer.set_exception(ProcessLookupError("its process died"))
        self._answers.put((worker, answer, None))

    def _listen(self) -> None:
        turned_at = time.monotonic()
        while not self._closed.is_set():
            try:
                worker, answer, _ = self._answers.get(timeout=TICK_S)
            except queue.Empty:
                pass
            else:
                self._take(worker, answer)
            now = time.monotonic()
            if now - turned_at > HELD_UP_S:
                self._forgive(now - turned_at)
            elif self._answers.empty():
                self._check_silence(now)
            turned_at = now

    def _take(self, worker: WorkerId, answer: "Future[Any]") -> None:
        ear, error = self._ears.get(worker), answer.exception()
        if ear is None:
            return
        if error is None:
            self._heard(worker, ear, answer.result())
        elif isinstance(error, RayTaskError):
            self.drop(worker)
            self._hearing.failed(worker, error)
        else:
            self._lose(worker, cause_of(error), silent_s=time.monotonic() - ear.heard_at)

    def _heard(self, worker: WorkerId, ear: _Ear, said: Birth | Pulse | None) -> None:
        match said:
            case Birth():
                ear.is_born = True
                self._born(said)
            case Pulse():
                ear.since = max((number for number, _ in said.reports), default=ear.since)
                self._hearing.pulse(said)
            case None:  # an order was taken
                return
        ear.heard_at = time.monotonic()
        ear.deadline = ear.heard_at + self._lease_s
        self._expect(worker, ear.handle.pulse.remote(self._epoch, ear.since, self._wait_s))

    def _check_silence(self, now: float) -> None:
        for worker, ear in list(self._ears.items()):
            if now > ear.deadline:
                silent_s = now - ear.heard_at
                cause = f"silent for {silent_s:.1f} s" if ear.is_born else f"not built within {silent_s:.0f} s"
                self._lose(worker, cause, silent_s=silent_s)
            elif not ear.is_born and now - ear.beat_at > BEAT_S:
                ear.beat_at = now
                ear.handle.beat.remote(self._epoch)

    def _forgive(self, held_up_s: float) -> None:
        for ear in list(self._ears.values()):
            ear.deadline += held_up_s

    def _lose(self, worker: WorkerId, cause: str, *, silent_s: float) -> None:
        self.drop(worker)
        self._hearing.lost(worker, cause, silent_s)


def cause_of(error: BaseException) -> str:
    """Why a worker's process is gone, in a few words."""
    if isinstance(error, RayActorError):
        text = str(error)
        if "connection error code" in text or "died unexpectedly" in text:
            return "its process died"
        if "node" in text and "died" in text:
            return "its node died"
    return str(error).strip().splitlines()[0]
