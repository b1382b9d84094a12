"""The Ray actor round a worker: it carries calls in and reports out, and decides nothing.

    orders    build, start, feed, grant      one thread: they take effect in the order they were sent
    pulse     pulse                          waits inside the worker for news; its own thread
    control   beat, abort, die, stop         answered while the worker trains, imports or waits

The worker trains in a thread of its own. A second thread keeps the orphan lease: a process that has heard nothing
from its controller for `orphan_lease_s` ends itself, whatever it computes and whether or not its node's Ray still
lives. A process that was stopped and is woken late finds its lease lapsed and ends before it acts.

Every call carries the epoch of the controller that makes it. A worker obeys the newest it has heard of: an older one,
which was thought lost and goes on, is refused, and its calls keep no lease.
"""

import importlib
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import ray

from raymega.errors import ConfigError, Superseded
from raymega.plan.plan import WorkerId
from raymega.worker import chaos_acts
from raymega.worker.interface import Assignment, Pulse, Rates, StepBatch, Steps, WorkerApi, WorkerSettings

EXIT_ORPHANED = 86  # seen in Ray's own records of the process
BIRTH_GRACE_S = 60.0  # until the first call


def actor_name(*, run: str, worker: WorkerId) -> str:
    """The name of a worker's actor, in namespace `raymega`."""
    return f"raymega:{run}:{worker}"


class OrphanLease:
    """Ends this process when `renew` was not called for `limit_s`; at first for `birth_grace_s`, if that is longer."""

    def __init__(
        self, *, limit_s: float, birth_grace_s: float = BIRTH_GRACE_S, end: Callable[[int], None] = os._exit
    ) -> None:
        self._limit_s, self._end = limit_s, end
        self._lapses_at = time.monotonic() + max(limit_s, birth_grace_s)

    def renew(self) -> None:
        """Start the lease anew, unless it has lapsed already: then end."""
        self.check()
        self._lapses_at = time.monotonic() + self._limit_s

    def check(self) -> float:
        """Seconds left; ends the process when there are none."""
        left_s = self._lapses_at - time.monotonic()
        if left_s <= 0:
            print("no word from the controller: this worker ends itself", file=sys.stderr, flush=True)
            self._end(EXIT_ORPHANED)
        return left_s

    def watch(self) -> None:
        """Check for ever, from a thread of its own."""
        while True:
            time.sleep(min(max(self.check(), 0.01), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """Where a worker came to life."""

    worker: WorkerId
    node: str
    pid: int


class Obedience:
    """To which controller a worker listens: the one of the highest epoch, whose calls keep the lease."""

    def __init__(self, lease: OrphanLease) -> None:
        self._lease, self._epoch, self._lock = lease, 0, threading.Lock()

    def heed(self, epoch: int) -> None:
        """Take a call of the controller of `epoch`. Raises: Superseded if there is a newer one."""
        with self._lock:
            if epoch < self._epoch:
                text = f"the controller of epoch {epoch} is refused: one of epoch {self._epoch} has taken its run over"
                raise Superseded(text, epoch=self._epoch)
            self._epoch = epoch
        self._lease.renew()


class WorkerActor:
    """One worker in a process of its own.

    Args:
        settings: what the worker knows from birth.
        factory: `module:callable` that makes the worker from `settings`.
        threads: threads of each numeric library.
        orphan_lease_s: silence of the controller after which the process ends.
    """

    def __init__(self, settings: WorkerSettings, *, factory: str, threads: int, orphan_lease_s: float) -> None:
        lease = OrphanLease(limit_s=orphan_lease_s)
        self._obedience = Obedience(lease)
        threading.Thread(target=lease.watch, name="orphan-lease", daemon=True).start()
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # read when the library loads, in `build`
            os.environ[variable] = str(threads)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a group that is cut on purpose is no news
        self._settings = settings
        self._factory = factory
        self._worker: WorkerApi
        self._building, self._is_built, self._to_leave = threading.Lock(), False, 0
        self._early: tuple[str, ...] = ()  # orders that came before there was a worker to take them

    @ray.method(concurrency_group="orders")
    def build(self, epoch: int) -> Birth:
        """Load the libraries and make the worker: the seconds of a start. A second time it is there already."""
        self._obedience.heed(epoch)
        if not self._is_built:
            if self._settings.log_file is not None:
                _write_output_to(self._settings.log_file)
            module, _, name = self._factory.partition(":")
            self._worker = getattr(importlib.import_module(module), name)(self._settings)
            with self._building:
                self._is_built = True
            if self._early:
                self._worker.chaos(self._early)
            if self._to_leave:
                self._worker.abort(self._to_leave, ())
        node = ray.get_runtime_context().get_node_id()
        return Birth(worker=self._settings.worker, node=node, pid=os.getpid())

    @ray.method(concurrency_group="orders")
    def start(self, epoch: int, assignment: Assignment) -> None:
        self._obedience.heed(epoch)
        self._worker.start(assignment)

    @ray.method(concurrency_group="orders")
    def feed(self, epoch: int, generation: int, batches: "tuple[StepBatch | ray.ObjectRef, ...]") -> None:
        """Large batches come as references, so that only this queue waits until they are here."""
        self._obedience.heed(epoch)
        self._worker.feed(generation, tuple(ray.get(b) if isinstance(b, ray.ObjectRef) else b for b in batches))

    @ray.method(concurrency_group="orders")
    def grant(
        self, epoch: int, generation: int, until_step: int, save_at: Steps, rates: Rates, full_at: Steps = ()
    ) -> None:
        self._obedience.heed(epoch)
        self._worker.grant(generation, until_step, save_at, rates, full_at)

    @ray.method(concurrency_group="pulse")
    def pulse(self, epoch: int, since: int, wait_s: float) -> Pulse:
        self._obedience.heed(epoch)
        return self._worker.pulse(since, wait_s)

    @ray.method(concurrency_group="control")
    def beat(self, epoch: int) -> None:
        """Renew the lease, nothing else: before the worker is built, and to ask whether the process lives."""
        self._obedience.heed(epoch)

    @ray.method(concurrency_group="control")
    def abort(self, epoch: int, generation: int, lost: tuple[str, ...]) -> None:
        self._obedience.heed(epoch)
        with self._building:
            if not self._is_built:  # it will say then that it is in no generation
                self._to_leave = max(self._to_leave, generation)
                return
        self._worker.abort(generation, lost)

    @ray.method(concurrency_group="control")
    def chaos(self, epoch: int, orders: tuple[str, ...]) -> None:
        self._obedience.heed(epoch)
        with self._building:
            if not self._is_built:
                self._early = (*self._early, *orders)
                return
        self._worker.chaos(orders)

    @ray.method(concurrency_group="control")
    def die(self, epoch: int) -> None:
        """As if this device were taken away: SIGKILL, by itself."""
        self._obedience.heed(epoch)
        chaos_acts.kill(whole_node=False)

    @ray.method(concurrency_group="control")
    def stop(self, epoch: int) -> None:
        self._obedience.heed(epoch)
        self._worker.stop()


# No restarts: a worker that died is another worker afterwards.
RemoteWorker = ray.remote(
    concurrency_groups={"orders": 1, "pulse": 1, "control": 2}, max_restarts=0, max_task_retries=0
)(WorkerActor)


def _write_output_to(file: str) -> None:
    """Send all this process prints to `file`, what its libraries print included.

    Raises: ConfigError naming node and file where it cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written on {platform.node()}: {error.strerror}. "
            "Set run.dir to a directory that every node can write to."
        ) from error
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
