"""The newest generation as the hands know it: its orders to the workers, and who of them is ready.

    assign   start(assignment) to all       -> Ready of each     -> WorkersReady once it is all of them
    grant    leave to run, to all
    feed     by the feeder, to those that need batches
    abort    to all

Orders of an older generation are dropped here already; workers refuse them too.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from raymega.checkpoint.find import read_manifest
from raymega.checkpoint.store import open_store
from raymega.config.schema import TrainingConfig
from raymega.control.commands import AbortGeneration, AssignPlan, Evaluate, Grant
from raymega.control.states import Checkpoint, State, members_of, plan_of
from raymega.driver.hands.feeder import Feeder, Sources
from raymega.driver.hands.publishing import SKIPPED
from raymega.driver.hands.rendezvous import Rendezvous
from raymega.driver.hands.worker_group import WorkerGroup
from raymega.driver.process.threads import Failed
from raymega.plan.plan import Plan, WorkerId
from raymega.train.loss_scale import LossScale, first_scale, scale_after, scale_of_scalars
from raymega.worker.interface import Assignment, EvalReport, Ready, StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What follows from which of the first `step` steps were skipped."""

    step: int
    skipped: int
    scale: LossScale


@dataclass(slots=True, kw_only=True)
class _Generation:
    """What is known of the newest membership.

    `members`: all who have a part in it, those included that only send state. `committed`: the newest step that was
    heard of. `base`: what was counted up to where `skipped` begins.
    `evaluated`: the newest step whose validation was heard of.
    """

    number: int
    plan: Plan
    members: tuple[WorkerId, ...]
    base: Counted
    committed: int
    evaluated: int = -1
    skipped: list[int] = field(default_factory=list)
    ready: set[WorkerId] = field(default_factory=set)


class Membership:
    """Speaks to the workers of the newest generation. Orders come from one thread, reports from another."""

    def __init__(
        self,
        workers: WorkerGroup,
        *,
        make_sources: Callable[[], Sources],
        rendezvous: Rendezvous,
        eval_batches: int,
        training: TrainingConfig,
        failed: Failed,
    ) -> None:
        self._training = training
        self._workers, self._rendezvous, self._eval_batches = workers, rendezvous, eval_batches
        self._feeder = Feeder(make_sources, send=self._send_batches, failed=failed)
        self._lock = threading.Lock()
        self._current: _Generation | None = None

    @property
    def generation(self) -> int:
        """The newest generation; 0 before the first."""
        return self._current.number if self._current is not None else 0

    def plan_of(self, generation: int) -> Plan | None:
        """The plan of `generation`, if that is the newest."""
        current = self._current
        return current.plan if current is not None and current.number == generation else None

    def adopt(self, state: State, *, skipped: Iterable[int]) -> None:
        """Go on with the generation that an earlier controller has made, as it stood in `state`.

        Args:
            skipped: steps that were skipped since the newest checkpoint.
        """
        plan, story = plan_of(state), state.story
        if plan is None:
            return
        self._feeder.read_ahead(story.committed)
        with self._lock:
            self._current = _Generation(
                number=story.generation,
                plan=plan,
                members=members_of(state),
                base=_counted_in(story.checkpoint, training=self._training),
                skipped=list(skipped),
                committed=story.committed,
            )

    def assign(self, command: AssignPlan) -> None:
        """Give every worker of the plan its place; in a move of state, those that only send have one too."""
        members = command.plan.living if command.move is None else command.move.members(command.plan)
        self._feeder.read_ahead(command.step)  # the first batches take seconds, and so do the workers
        before = self._current if command.keep_state or command.move is not None else None
        base = before.base if before is not None else _counted_in(command.checkpoint, training=self._training)
        kept = [] if before is None else [number for number in before.skipped if number <= command.step]
        with self._lock:
            self._current = _Generation(
                number=command.generation,
                plan=command.plan,
                members=members,
                base=base,
                skipped=kept,
                committed=command.step,
            )
        counted = self._count(base, kept, step=command.step)
        assignment = Assignment(
            generation=command.generation,
            plan=command.plan,
            step=command.step,
            store=self._rendezvous.address,
            checkpoint=command.checkpoint.uri if command.checkpoint is not None else None,
            keep_state=command.keep_state,
            rates=command.rates,
            eval_batches=self._eval_batches,
            skipped=counted.skipped,
            scale=counted.scale,
            settle=command.settle.facts if command.settle is not None else None,
            links=command.links,
            move=command.move,
            copies=command.copies,
            evaluate=command.evaluate,
        )
        for worker in members:
            self._workers.send(worker, "start", replace(assignment, repair=command.repair.get(worker)))

    def abort(self, command: AbortGeneration) -> None:
        """Wake every worker out of a generation."""
        self._tell_all(command.generation, "abort", command.generation, command.lost)

    def grant(self, command: Grant) -> None:
        said = (command.until, command.save_at, command.rates, command.full_at)
        self._tell_all(command.generation, "grant", command.generation, *said)

    def feed_from(self, step: int) -> None:
        """Send batches ahead from index `step` on."""
        assert self._current is not None, "a plan is assigned before it is fed"
        self._feeder.feed_from(step, generation=self._current.number, plan=self._current.plan)

    def evaluate(self, command: Evaluate) -> None:
        """Send the validation split."""
        current = self._current
        if current is not None and current.number == command.generation:
            self._feeder.evaluate(command.after_step, generation=current.number, plan=current.plan)

    def is_complete_with(self, worker: WorkerId, report: Ready) -> bool:
        """Note that `worker` is ready; True for the last one of its generation."""
        with self._lock:
            current = self._current
            if current is None or current.number != report.generation:
                return False
            current.ready.add(worker)
            return current.ready == set(current.plan.living)

    def is_news(self, report: StepReport | EvalReport) -> bool:
        """Note a committed step, whose batch is not needed any more, or a loss; False if told of before."""
        if isinstance(report, EvalReport):
            return self._is_first_validation(report)
        with self._lock:
            current = self._current
            if current is None or current.number != report.generation:
                return False
            if report.step <= current.committed:
                return False
            current.committed = report.step
            if report.skipped:
                current.skipped.append(report.step)
        self._feeder.committed(report.step)
        return True

    def _is_first_validation(self, report: EvalReport) -> bool:
        with self._lock:
            current = self._current
            if current is None or current.number != report.generation:
                return False
            if report.after_step <= current.evaluated or report.after_step < current.committed:
                return False
            current.evaluated = report.after_step
        return True

    def counted(self, *, generation: int, step: int) -> Counted | None:
        """Of the first `step` steps; None once a newer generation was assigned."""
        with self._lock:
            current = self._current
            if current is None or current.number != generation:
                return None
            return self._count(current.base, current.skipped, step=step)

    def _count(self, base: Counted, skipped: list[int], *, step: int) -> Counted:
        """From `base` on to `step`, with the steps that were `skipped` since."""
        steps, overflowed = range(base.step + 1, step + 1), set(skipped)
        scale = scale_after(base.scale, steps=steps, overflowed=overflowed, training=self._training)
        return Counted(step=step, skipped=base.skipped + sum(number <= step for number in skipped), scale=scale)

    def close(self) -> None:
        self._feeder.close()

    def _tell_all(self, generation: int, order: str, *arguments: object) -> None:
        current = self._current
        if current is not None and current.number == generation:
            for worker in current.members:
                self._workers.send(worker, order, *arguments)

    def _send_batches(self, worker: WorkerId, generation: int, batches: tuple[object, ...]) -> None:
        self._workers.send(worker, "feed", generation, batches)


def _counted_in(checkpoint: Checkpoint | None, *, training: TrainingConfig) -> Counted:
    """Up to a checkpoint, by its manifest; nothing without one."""
    if checkpoint is None:
        return Counted(step=0, skipped=0, scale=first_scale(training))
    manifest = read_manifest(open_store(checkpoint.uri))
    scale = scale_of_scalars(manifest.scalars, training=training)
    return Counted(step=manifest.step, skipped=int(manifest.scalars.get(SKIPPED, 0)), scale=scale)
