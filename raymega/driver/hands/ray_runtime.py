"""The hands of the brain on Ray: commands become calls of actors, and what comes of them events.

    loop thread        carry_out(command) ---> orders        one thread, in order: start, assign, feed, grant, abort
                                          ---> undertaker    ends workers
                                          ---> clerk         publishes checkpoints
    listener, node watch, feeder  ---> queue of events ---> next_event

`carry_out` never waits. What fails in one of these threads comes back as an event that ends the run with its cause.
"""

import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import ray

from raymega.config.schema import Config
from raymega.control import commands as ask
from raymega.control.commands import Command
from raymega.control.events import (
    Event,
    Tick,
    WorkerBorn,
    WorkerLost,
    WorkersReady,
)
from raymega.control.states import GENERATIONS, State, seats_of
from raymega.driver.cluster.node_watch import NodeWatch, devices_of
from raymega.driver.cluster.size_watch import SizeWatch
from raymega.driver.hands.asking import Desk
from raymega.driver.hands.chaos import ChaosHands
from raymega.driver.hands.feeder import Sources
from raymega.driver.hands.hiring import hiring_of
from raymega.driver.hands.listening import Hearing
from raymega.driver.hands.membership import Membership
from raymega.driver.hands.place import Place
from raymega.driver.hands.publication import outcome_of
from raymega.driver.hands.publishing import Publisher
from raymega.driver.hands.rendezvous import Rendezvous
from raymega.driver.hands.trace_replay import Replays
from raymega.driver.hands.translate import event_of, failed
from raymega.driver.hands.worker_group import WorkerGroup, end_leftovers
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.tenure import Tenure
from raymega.driver.records.time_sheets import TimeSheets
from raymega.driver.records.traces import Traces
from raymega.driver.sinks.live_figures import Vitals, vitals_of
from raymega.driver.spot.tending import Tending
from raymega.errors import Superseded
from raymega.plan.plan import WorkerId
from raymega.worker.interface import (
    ChaosAsked,
    EvalReport,
    GenerationBroken,
    Pulse,
    Ready,
    Report,
    ShardsSaved,
    StepReport,
    StepTrace,
)

ABSENT = "it was gone when the controller was replaced"
CONTROLLER = "controller"  # stands for this process where an event names a worker


class RayRuntime:
    """`control.runtime.Runtime` on Ray."""

    def __init__(
        self, config: Config, *, place: Place, make_sources: Callable[[], Sources], publisher: Publisher,
        tenure: Tenure, events: Iterable[Event] = (),
    ) -> None:  # fmt: skip
        self._tenure, self._refused = tenure, False
        self._config, self._place, self._publisher = config, place, publisher
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        for event in events:
            self.tell(event)
        self._newest_t = 0.0
        self.desk = Desk(self.tell, first=tenure.epoch * GENERATIONS)
        self._chaos = ChaosHands(self.tell)
        self._orders, self._undertaker, self._clerk = (
            ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("orders", "undertaker", "clerk")
        )
        self._tending = Tending(config, device=place.device)
        self.sizes = SizeWatch(config, run=place.run, devices=devices_of(config, device=place.device), tell=self.tell)
        self._watch = NodeWatch(
            device=place.device, cpus_per_worker=config.run.cpus_per_worker, tell=self.tell, failed=self._fail,
            least=config.elastic.min_devices, taken=self.sizes.taken, looked=self._tending.saw,
        )  # fmt: skip
        self._rendezvous = Rendezvous(self._watch.addresses[ray.get_runtime_context().get_node_id()])
        hearing = Hearing(pulse=self._heard, born=self._born, lost=self._lost, failed=self._broke, broke=self._fail)
        self._workers = WorkerGroup(
            hiring_of(config, place=place, epoch=tenure.epoch, watch=self._watch, chaos=self._chaos), hearing=hearing
        )
        self.replays = Replays(self._watch, self._workers, ask=self.desk.ask, chaos=self._chaos, failed=self._fail)
        self._membership = Membership(
            self._workers, make_sources=make_sources, rendezvous=self._rendezvous, eval_batches=place.eval_batches,
            training=config.training, failed=self._fail,
        )  # fmt: skip
        self._memory: dict[WorkerId, int] = {}
        self._unsent: dict[WorkerId, float] = {}
        self._times = TimeSheets(RunDirectory(path=Path(place.run_dir)).workers, began_t=place.began_t)
        self._traces = Traces(folder=Path(place.run_dir) / "traces", later=lambda work: self._do(self._clerk, work))

        self.sizes.begin(devices=lambda: self._watch.devices, seats=self._workers.by_node, failed=self._fail)

    def now(self) -> float:
        """Unix seconds; never goes back."""
        self._newest_t = max(self._newest_t, time.time())
        return self._newest_t

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if self._refused:
            self._tenure.check()
        return event

    def adopt(self, state: State, *, skipped: Iterable[int]) -> None:
        """Listen to the workers of `state`, which an earlier controller has started; the others it had are ended.

        Args:
            skipped: steps that were skipped since the newest checkpoint.
        """
        seats = seats_of(state)
        end_leftovers(self._place.run, but=[seat.worker for seat in seats])
        self._membership.adopt(state, skipped=skipped)
        for seat in self._workers.adopt(seats):
            gone = seat.node not in self._watch.alive
            self.tell(WorkerLost(worker=seat.worker, node=seat.node, cause=ABSENT, node_gone=gone, absent=True))

    def tell(self, event: Event) -> None:
        """Add an event, from any thread."""
        self._events.put(event)

    @property
    def memory_bytes(self) -> int:
        """Of the worker that holds most: on its device, or resident."""
        return max(tuple(self._memory.values()), default=0)

    def vitals(self) -> Vitals:
        """What each living worker told of itself last."""
        return vitals_of(self._times.newest(), memory_bytes=dict(self._memory))

    def carry_out(self, command: Command) -> None:
        match command:
            case ask.StartWorkers():
                self._times.asked((seat.worker for seat in command.seats), t=self.now())
                self._do(self._orders, lambda: self._workers.start(command.seats))
            case ask.StopWorkers():
                self._times.stopped(command.workers, t=self.now())
                self._do(self._undertaker, lambda: self._workers.stop(command.workers))
            case ask.AssignPlan():
                self._do(self._orders, lambda: self._membership.assign(command))
            case ask.AbortGeneration():
                self._do(self._orders, lambda: self._membership.abort(command))
            case ask.FeedFrom():
                self._do(self._orders, lambda: self._membership.feed_from(command.step))
            case ask.Grant():
                self._do(self._orders, lambda: self._membership.grant(command))
            case ask.Evaluate():
                self._do(self._orders, lambda: self._membership.evaluate(command))
            case ask.PublishCheckpoint():
                self._do(self._clerk, lambda: self._publish(command))
            case ask.WithdrawCheckpoints():
                self._do(self._orders, lambda: self._publisher.withdraw(after_step=command.after_step))
            case ask.Disturb():
                self._do(self._orders, lambda: self._disturb(command))
            case ask.Answer():
                self.desk.answer(command)
            case ask.WriteStep() | ask.Rewind() | ask.WriteRepair() | ask.WriteTransition() | ask.Finish():
                pass  # the sinks' part; after the end the loop returns, and `close` follows

    def close(self) -> None:
        """End all that this run has started, and see that it is gone. Raises: ClusterError naming what stays."""
        self.desk.close()
        self.replays.close()
        end_workers = self._workers.leave if self._tenure.is_over() else self._workers.close
        self._orders.shutdown(cancel_futures=True)
        self._membership.close()
        self._do(self._clerk, lambda: self._times.write(t=time.time()))
        end_workers()  # until then the listener has work for the others
        self._undertaker.shutdown()
        self._clerk.shutdown()
        self.sizes.close()
        self._watch.close()
        self._tending.close()
        self._rendezvous.close()

    def _do(self, thread: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        def ended(done: Future[None]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                self._fail(error)

        def if_still_mine() -> None:
            if not self._tenure.is_over():
                work()

        thread.submit(if_still_mine).add_done_callback(ended)

    def _fail(self, error: BaseException) -> None:
        self.tell(failed(CONTROLLER, error, generation=self._membership.generation))

    def _disturb(self, command: ask.Disturb) -> None:
        if command.orders:
            self._chaos.disturb(command.orders, workers=self._workers)
        if command.without is not None:
            self.replays.do_without(dict(command.without))

    def _publish(self, command: ask.PublishCheckpoint) -> None:
        self.tell(outcome_of(command, membership=self._membership, publisher=self._publisher))

    # Called from the listener's thread.

    def _heard(self, pulse: Pulse) -> None:
        self._memory[pulse.worker] = pulse.device_bytes or pulse.rss_bytes
        self._unsent[pulse.worker] = pulse.unsent_norm
        if self._times.heard(pulse.worker, pulse.spent, t=time.time(), peak_bytes=pulse.memory_bytes):
            self._do(self._clerk, lambda: self._times.write(t=time.time()))
        for _, report in pulse.reports:
            self._take(pulse.worker, report)

    def _born(self, worker: WorkerId) -> None:
        self.tell(WorkerBorn(worker=worker))

    def _take(self, worker: WorkerId, report: Report) -> None:
        match report:
            case Ready():
                if self._membership.is_complete_with(worker, report):
                    self.tell(WorkersReady(generation=report.generation))
                return
            case ChaosAsked():
                if report.generation >= self._tenure.epoch * GENERATIONS:  # else one before this has carried it out
                    self._chaos.take(report, node=self._workers.node_of(worker))
                return
            case StepTrace():
                plan = self._membership.plan_of(report.generation)
                if plan is not None:
                    self._traces.add(worker, report, plan=plan)
                return
            case ShardsSaved():
                self._publisher.saved(worker, report)
            case StepReport() | EvalReport() if not self._membership.is_news(report):
                return
            case GenerationBroken():
                for commit in report.commits:  # who should have told of them may be gone
                    self._take(worker, commit)
        self.tell(event_of(worker, report))

    def _lost(self, worker: WorkerId, cause: str, silent_s: float) -> None:
        self._memory.pop(worker, None)
        self._times.lost(worker, t=time.time())
        node = self._workers.node_of(worker)
        self.tell(WorkerLost(
            worker=worker, node=node, cause=cause, silent_s=silent_s, node_gone=node not in self._watch.alive,
            unsent_norm=self._unsent.pop(worker, 0.0),
        ))  # fmt: skip
        self._do(self._undertaker, lambda: self._workers.kill((worker,)))

    def _broke(self, worker: WorkerId, error: BaseException) -> None:
        if isinstance(error, Superseded):
            self._refused = True  # which the loop finds out with the next event
        self.tell(Tick() if self._refused else failed(worker, error, generation=self._membership.generation))
