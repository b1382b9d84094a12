"""One worker's life: it is assigned a place in a generation, runs steps as far as it has leave, and reports.

    controller's calls (any thread)             training thread, one for each generation
      start(assignment)  --> orders               wait for an assignment
      feed(batches)      --> batches                build groups, hold state, report Ready
      grant(until)       --> orders                 while there is leave: step, report, snapshot, evaluate
      abort(generation)  --> orders, waking         a peer is gone: leave, report GenerationBroken, keep the state
      pulse(since)       <-- reports              wait for the next assignment

It knows no Ray and decides nothing about the run. Orders of an older generation have no effect.
"""

import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from raymega.comm.boundary_log import BoundaryLog
from raymega.comm.group import Fabric
from raymega.errors import CollectiveTimeout, GroupBroken, StaleMessage
from raymega.metrics import generation_words
from raymega.plan.plan import WorkerId
from raymega.worker.batches import BatchStore
from raymega.worker.chaos import Chaos
from raymega.worker.copy_slots import Slots
from raymega.worker.desk import Desk
from raymega.worker.generation import Generation
from raymega.worker.held import Held
from raymega.worker.interface import (
    Assignment,
    Decision,
    GenerationBroken,
    Pulse,
    Rates,
    StepBatch,
    Steps,
    WorkerFailed,
    WorkerSettings,
)
from raymega.worker.memory import IN_A_STEP, PeakMemory, is_out_of_memory, let_go_of, resident_bytes
from raymega.worker.move_state import serve
from raymega.worker.orders import Asked, Orders
from raymega.worker.peer_copies import PeerCopies
from raymega.worker.reports import Reports
from raymega.worker.saving import Saves
from raymega.worker.state import TrainState
from raymega.worker.time_sheet import TimeSheet
from raymega.worker.waking import Waking
from raymega.worker.wires import MakeFabric, connect

WORLD_CHANGED = (GroupBroken, CollectiveTimeout, StaleMessage)


class Worker:
    """`WorkerApi` without Ray. The training thread starts with the first assignment."""

    def __init__(self, settings: WorkerSettings, *, fabric: MakeFabric = connect) -> None:
        self.settings = settings
        self.orders, self.reports, self.batches = Orders(), Reports(), BatchStore()
        saves = Saves(settings=settings, reports=self.reports)
        self._desk = Desk(
            settings=settings, held=Held(), orders=self.orders, reports=self.reports, batches=self.batches, saves=saves,
            copies=PeerCopies(me=settings.worker, every=settings.config.elastic.copies_every),
            log=BoundaryLog(device=settings.device, kept=settings.config.elastic.boundary_log),
            chaos=Chaos(settings=settings, ask=self.reports.add), sheet=TimeSheet(),
        )  # fmt: skip
        self._make_fabric, self._memory = fabric, PeakMemory.of(settings.device)
        lease_s = settings.config.elastic.lease_s
        self._waking, self._waking_copies = Waking(lease_s=lease_s), Waking(lease_s=lease_s)
        self._generation: Generation | None = None
        self._thread: threading.Thread | None = None
        self.orders.listen(self._wake)

    @property
    def state(self) -> TrainState | None:
        """What it holds of the run."""
        return self._desk.held.state

    @property
    def copies(self) -> Slots:
        """Copies of state that it keeps, its own and those of others."""
        return self._desk.copies.slots

    def start(self, assignment: Assignment) -> None:
        """Leave any older generation and take this place."""
        self.orders.assign(assignment)
        self._be_alive()

    def feed(self, generation: int, batches: tuple[StepBatch, ...]) -> None:
        """Put batches ahead; those of another generation are dropped."""
        if self.orders.is_current(generation):
            self.batches.put(batches)

    def grant(
        self, generation: int, until_step: int, save_at: Steps = (), rates: Rates = (), full_at: Steps = ()
    ) -> None:
        """Leave to run until `until_step` steps are committed."""
        self.orders.grant(generation, until_step, save_at, rates, full_at)

    def abort(self, generation: int, lost: tuple[WorkerId, ...] = ()) -> Decision | None:
        """Leave `generation`; returns the newest decision: a promise that no other follows.

        A report of it follows too, even if this worker never had its place in `generation`.
        """
        decided = self.orders.abort(generation, lost=lost)
        self._be_alive()
        return decided

    def chaos(self, orders: tuple[str, ...]) -> None:
        """Go wrong on purpose, beside what the config says."""
        self._desk.chaos.add(orders)

    def stop(self) -> None:
        """End the training thread; blocks until it has ended."""
        self.orders.stop()
        if self._thread is not None:
            self._thread.join()
        self._desk.saves.finish()
        self.reports.close()

    def pulse(self, since: int, wait_s: float) -> Pulse:
        """Reports numbered above `since`, as soon as there are any; after `wait_s` seconds without."""
        reports = self.reports.since(since, wait_s=wait_s)
        generation, state = self._generation, self.state
        return Pulse(
            worker=self.settings.worker,
            generation=generation.number if generation is not None else 0,
            committed=state.committed if state is not None else 0,
            phase=self._desk.sheet.phase,
            reports=reports,
            rss_bytes=resident_bytes(),
            device_bytes=self._memory.look() if self._memory.on_cuda else 0,
            memory_bytes=self._memory.look(),
            unsent_norm=state.unsent_norm if state is not None else 0.0,
            log_bytes=self._desk.log.peak_bytes,
            copies_bytes=self.copies.num_bytes,
            spent=self._desk.sheet.spent,
        )

    def _wake(self) -> None:
        """A generation ended: break its groups, and let whoever waits for a batch look again."""
        lost = self.orders.lost | ({self.settings.worker} if self.orders.stopped else set())
        for waking in (self._waking, self._waking_copies):
            waking.wake(lost=lost, is_current=self.orders.is_current)
        self.batches.wake()

    def _be_alive(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name="raymega-worker", daemon=True)
            self._thread.start()

    def _live(self) -> None:
        last = 0
        while (order := self.orders.next_order(last)) is not None:
            number = order.generation
            if isinstance(order, Asked):
                last = self._report_left(0, reason=f"told to leave {generation_words(number)}, in which it never was")
                continue
            with ThreadPoolExecutor(1, thread_name_prefix=f"raymega-g{number}") as pool:
                error = pool.submit(self._train, order).exception()
            last = number
            if error is not None:
                last = self._report_end(error, generation=number)
            elif not self.orders.stopped:
                last = self._report_left(number, reason="told to leave")

    def _train(self, assignment: Assignment) -> None:
        """One generation, from building its groups to leaving it."""
        fabric = self._make_fabric(assignment=assignment, settings=self.settings)
        self._waking.begin(fabric)
        try:
            if not self.orders.is_current(assignment.generation):
                return
            work = self._generation.work if self._generation is not None else None
            self._generation = Generation(assignment=assignment, desk=self._desk, fabric=fabric, work=work)
            if self.settings.worker in assignment.plan.living:
                self._generation.enter()
                if self.settings.device == "cpu":  # of a broken step a GPU keeps nothing
                    self._waking.spare(self._generation.team)
                self._join_copies(assignment)
                self._generation.run()
            else:
                self._serve(assignment, fabric=fabric)
        finally:
            self._waking.end()
            self._waking_copies.end()
            self._desk.copies.leave()
            if self._generation is not None:
                self._generation.abandon()

    def _join_copies(self, assignment: Assignment) -> None:
        """Connect to those who keep copies of my state, and whose I keep: host memory, whatever the device."""
        if not assignment.copies:
            return
        fabric = self._make_fabric(assignment=assignment, settings=replace(self.settings, device="cpu"))
        self._waking_copies.begin(fabric)
        if self.orders.is_current(assignment.generation):
            self._desk.copies.join(assignment.copies, fabric=fabric)

    def _serve(self, assignment: Assignment, *, fabric: Fabric) -> None:
        """Send state to those who go on, and stay until the generation is over."""
        assert self._generation is not None, "it is in a generation"
        self._desk.sheet.enter("moving")
        moved = serve(assignment, settings=self.settings, fabric=fabric, held=self._desk.held, slots=self.copies)
        self.reports.add(moved)
        self.orders.next_leave(assignment.generation, assignment.step)

    @property
    def _repairs(self) -> bool:
        return self.settings.config.elastic.boundary_log != "off"

    def _report_end(self, error: BaseException, *, generation: int) -> int:
        if isinstance(error, WORLD_CHANGED):
            return self._report_left(generation, reason=str(error))
        phase = self._desk.sheet.phase
        if is_out_of_memory(error) and phase in IN_A_STEP and self._generation is not None:
            self._generation.work = None
            return self._report_left(generation, reason="out of memory", short=f"in {phase} ({let_go_of(error)})")
        trace = "".join(traceback.format_exception(error))
        self.reports.add(WorkerFailed(generation=generation, error=error, traceback=trace))
        return generation

    def _report_left(self, generation: int, *, reason: str, short: str = "") -> int:
        """The promise: under the orders' lock, nothing up to the newest generation to be left decides any more.

        Returns that generation. Where this worker never had its place in it, what others were told to do anew may be
        in its accumulators too, so these count for nothing.
        """
        decided, state, broken = self.orders.abort(generation), self.state, self._generation
        left = self.orders.aborted
        if broken is not None:
            self._desk.sheet.leave(
                done_at=broken.work.done_at if broken.work is not None else 0.0,
                wait_s=broken.work.wait_s if broken.work is not None else 0.0,
            )
        work = broken.report_work() if broken is not None and state is not None and self._repairs else None
        if work is not None and left != generation:
            work = replace(work, spoiled=True)
        self.reports.add(
            GenerationBroken(
                generation=left,
                reason=reason,
                committed=state.committed if state is not None else 0,
                decided_in=state.decided_in if state is not None else 0,
                decided=decided,
                work=work,
                commits=tuple(broken.commits) if broken is not None else (),
                kept=self.copies.kept,
                short_of_memory=short,
            )
        )
        return left
