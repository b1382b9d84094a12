"""The brain's hands on plain processes: the driver's own membership, feeder and publisher; a crew instead of Ray."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from raymega.config.schema import Config
from raymega.control import commands as ask
from raymega.control.events import (
    DrainAsked,
    Event,
    NodesChanged,
    WorkerBorn,
    WorkerLost,
    WorkersReady,
)
from raymega.control.states import NodeDevices
from raymega.driver.hands.chaos import ChaosHands
from raymega.driver.hands.membership import Membership
from raymega.driver.hands.publication import outcome_of
from raymega.driver.hands.publishing import Imprint, Publisher
from raymega.driver.hands.rendezvous import Rendezvous
from raymega.driver.hands.translate import event_of
from raymega.metrics import StepRecord
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
from workloads.chaos.crew import Crew, News

LAST_STEPS = 2  # they are left in peace


@dataclass(kw_only=True)
class Kept:
    """What a run has told, in the order in which it did."""

    records: dict[int, StepRecord] = field(default_factory=dict)
    assigned: list[ask.AssignPlan] = field(default_factory=list)
    repairs: list[ask.WriteRepair] = field(default_factory=list)
    rewound: list[int] = field(default_factory=list)
    lost: list[tuple[float, WorkerId]] = field(default_factory=list)
    committed_at: dict[int, float] = field(default_factory=dict)
    changes: list[tuple[float, ask.WriteTransition]] = field(default_factory=list)
    commands: list[ask.Command] = field(default_factory=list)


class ProcessHands:
    """`control.runtime.Runtime` over a crew. Committed steps are told to `on_step` in the loop's thread."""

    def __init__(self, config: Config, *, crew: Crew, rendezvous: Rendezvous, sources: object, folder: Path) -> None:
        self.kept, self.born = Kept(), set[WorkerId]()
        self._config, self._crew, self._folder = config, crew, folder
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self._orders = ThreadPoolExecutor(1, thread_name_prefix="orders")
        self._undertaker = ThreadPoolExecutor(1, thread_name_prefix="undertaker")
        self._membership = Membership(
            crew, make_sources=lambda: sources, rendezvous=rendezvous, eval_batches=0, training=config.training,
            failed=self._events.put,
        )  # fmt: skip  # type: ignore[arg-type]
        self._publisher = Publisher(
            config=config, imprint=Imprint(run_id="toy", config_digest="", tokenizer="none"), directory=str(folder)
        )
        self._chaos = ChaosHands(self.tell)
        self._gone: set[WorkerId] = set()
        self.changed = threading.Condition()
        crew.news = News(born=self._born, pulse=self._heard, lost=self._lost)

    def now(self) -> float:
        return time.time()

    def tell(self, event: Event) -> None:
        self._events.put(event)

    def fail(self, error: BaseException) -> None:
        """End the run with what somebody beside it raised."""
        self._events.put(error)

    def tell_nodes(self, devices: dict[str, int]) -> None:
        self.tell(NodesChanged(nodes=tuple(NodeDevices(node=n, devices=d) for n, d in sorted(devices.items()))))

    def disturb(self, orders: tuple[str, ...]) -> None:
        """Have these things go wrong in workers that are there, and in those to come."""
        self._chaos.add(orders)
        for worker in self._crew.names:
            self._crew.send(worker, "chaos", orders)

    def drain(self, node: str, *, for_s: float) -> None:
        self.tell(DrainAsked(request=None, node=node, by_t=time.time() + for_s, cause="the soak says so"))

    def wait_for(self, what: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `what` is so, which may change with every step and change of plan; whether it is."""
        with self.changed:
            return self.changed.wait_for(what, limit_s)

    def is_near_the_end(self, *, within_s: float) -> bool:
        """Wait so long; whether by then hardly a step is left to disturb."""
        last = self._config.training.steps - LAST_STEPS
        return self.wait_for(lambda: len(self.kept.records) >= last, within_s)

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(event, BaseException):
            raise event
        return event

    def carry_out(self, command: ask.Command) -> None:
        self._keep(command)
        match command:
            case ask.StartWorkers():
                self._do(self._orders, lambda: self._crew.start(command.seats))
            case ask.StopWorkers():
                self._do(self._undertaker, lambda: self._crew.kill(command.workers))
            case ask.AssignPlan():
                self._do(self._orders, lambda: self._membership.assign(command))
            case ask.AbortGeneration():
                self._do(self._orders, lambda: self._membership.abort(command))
            case ask.FeedFrom():
                self._do(self._orders, lambda: self._membership.feed_from(command.step))
            case ask.Grant():
                self._do(self._orders, lambda: self._membership.grant(command))
            case ask.PublishCheckpoint():
                self._do(self._undertaker, lambda: self._publish(command))
            case _:
                pass  # for records, and for people

    def _keep(self, command: ask.Command) -> None:
        kept = self.kept
        kept.commands.append(command)
        match command:
            case ask.WriteStep():
                assert command.record.step not in kept.records, "every step is written once"
                kept.records[command.record.step] = command.record
                kept.committed_at[command.record.step] = time.monotonic()
                with self.changed:
                    self.changed.notify_all()
            case ask.Rewind():
                kept.rewound.append(command.step)
                for step in [step for step in kept.records if step > command.step]:
                    del kept.records[step]
            case ask.AssignPlan():
                kept.assigned.append(command)
            case ask.WriteRepair():
                kept.repairs.append(command)
            case ask.WriteTransition():
                kept.changes.append((time.monotonic(), command))
                with self.changed:
                    self.changed.notify_all()
            case _:
                pass

    def close(self) -> None:
        """Let go of the crew, which lives on."""
        self._crew.news = None
        for thread in (self._orders, self._undertaker):
            thread.shutdown()
        self._membership.close()

    def _do(self, thread: ThreadPoolExecutor, work: object) -> None:
        def ended(done: "Future[None]") -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                self._events.put(error)

        thread.submit(work).add_done_callback(ended)  # type: ignore[arg-type]

    def _publish(self, command: ask.PublishCheckpoint) -> None:
        self.tell(outcome_of(command, membership=self._membership, publisher=self._publisher))

    # Called from the crew's thread.

    def _born(self, worker: WorkerId) -> None:
        if self._chaos.orders:
            self._crew.send(worker, "chaos", self._chaos.orders)
        with self.changed:
            self.born.add(worker)
            self.changed.notify_all()
        self.tell(WorkerBorn(worker=worker))

    def _heard(self, pulse: Pulse) -> None:
        for _, report in pulse.reports:
            self._take(pulse.worker, report)

    def _take(self, worker: WorkerId, report: Report) -> None:
        match report:
            case Ready():
                if self._membership.is_complete_with(worker, report):
                    self.tell(WorkersReady(generation=report.generation))
                return
            case ChaosAsked():
                self._chaos.take(report, node=self._crew.node_of(worker))
                return
            case StepTrace():
                return
            case ShardsSaved():
                self._publisher.saved(worker, report)
            case StepReport() | EvalReport() if not self._membership.is_news(report):
                return
            case GenerationBroken():
                for commit in report.commits:
                    self._take(worker, commit)
        self.tell(event_of(worker, report))

    def _lost(self, worker: WorkerId, cause: str, silent_s: float) -> None:
        self.kept.lost.append((time.monotonic(), worker))
        node = self._crew.node_of(worker)
        self.tell(WorkerLost(worker=worker, node=node, cause=cause, silent_s=silent_s))
        self._do(self._undertaker, lambda: self._crew.kill((worker,)))
