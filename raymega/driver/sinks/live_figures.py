"""What a run tells Prometheus while it trains: every figure by name, and its value now.

    raymega_loss{run="demo"} 4.81        raymega_stage_busy_share{run="demo", stage="1"} 0.72

Ray exports them on each node's metrics port with `ray_` before the name. All are gauges: a controller that takes over
goes on with the same values, and nothing that is counted twice can come of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from raymega.control.goodput import CATEGORIES
from raymega.driver.records.progress import Progress
from raymega.metrics import StepRecord
from raymega.plan.plan import Plan, WorkerId
from raymega.worker.time_sheet import Spent

EXPORTED_AS = "ray_"  # Ray's prefix of whatever an application exports


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A metric: its name, what it is, and its labels beside `run`."""

    name: str
    words: str
    labels: tuple[str, ...] = ()


FIGURES = (
    Figure(name="raymega_loss", words="Loss of the newest committed step, nats per token over the whole batch."),
    Figure(name="raymega_validation_loss", words="Newest validation loss, nats per token."),
    Figure(name="raymega_grad_norm", words="Gradient norm of the newest step, before clipping."),
    Figure(name="raymega_learning_rate", words="Learning rate of the newest step."),
    Figure(name="raymega_step", words="Committed steps."),
    Figure(name="raymega_step_seconds", words="Seconds of the newest step."),
    Figure(name="raymega_tokens_per_second", words="Trained tokens a second, of the whole mesh."),
    Figure(name="raymega_goodput", words="Share of worker-seconds that entered a committed step, from 0 to 1."),
    Figure(name="raymega_worker_seconds", words="Worker-seconds since the start, by category.", labels=("category",)),
    Figure(name="raymega_steps_lost", words="Steps that had been committed and had to be done again."),
    Figure(name="raymega_regroupings", words="Generations after the first: losses, changes of the plan."),
    Figure(name="raymega_workers", words="Workers with a part in the plan."),
    Figure(name="raymega_memory_bytes", words="Of the worker of a stage that holds most.", labels=("stage",)),
    Figure(name="raymega_stage_busy_share", words="Share of a stage's seconds spent computing.", labels=("stage",)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A value of a figure."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vital:
    """What a worker told of itself last."""

    memory_bytes: int = 0
    spent: Spent = field(default_factory=Spent)

    @property
    def useful_s(self) -> float:
        return self.spent.seconds.get("useful", 0.0) + self.spent.in_hand.get("useful", 0.0)

    @property
    def all_s(self) -> float:
        return sum(self.spent.seconds.values()) + sum(self.spent.in_hand.values())


Vitals = Mapping[WorkerId, Vital]


def vitals_of(sheets: Mapping[WorkerId, Spent], *, memory_bytes: Mapping[WorkerId, int]) -> Vitals:
    """What each worker told last: of its seconds, and of what it holds."""
    return {
        worker: Vital(memory_bytes=memory_bytes.get(worker, 0), spent=spent) for worker, spent in sheets.items()
    }  # fmt: skip


def samples_of(progress: Progress) -> Iterator[Sample]:
    """What follows from the turns of the run."""
    if progress.last is not None:
        yield from _of_record(progress.last)
    if progress.validated is not None and progress.validated.val_loss is not None:
        yield Sample(name="raymega_validation_loss", value=progress.validated.val_loss)
    if progress.story is not None:
        yield Sample(name="raymega_step", value=progress.story.committed)
        yield Sample(name="raymega_steps_lost", value=progress.story.steps_lost)
    yield Sample(name="raymega_goodput", value=progress.goodput.share)
    for category in CATEGORIES:
        seconds = progress.goodput.seconds[category]
        yield Sample(name="raymega_worker_seconds", value=seconds, labels=(("category", category),))
    yield Sample(name="raymega_regroupings", value=progress.generations)
    yield Sample(name="raymega_workers", value=len(progress.plan.living) if progress.plan is not None else 0)


def _of_record(record: StepRecord) -> Iterator[Sample]:
    yield Sample(name="raymega_loss", value=record.loss)
    yield Sample(name="raymega_grad_norm", value=record.grad_norm)
    yield Sample(name="raymega_learning_rate", value=record.lr)
    yield Sample(name="raymega_step_seconds", value=record.step_s)
    yield Sample(name="raymega_tokens_per_second", value=record.tokens_per_s)


def stage_samples(plan: Plan, *, before: Vitals, now: Vitals) -> Iterator[Sample]:
    """What the workers of each stage told, and what they did since `before`."""
    for stage in range(plan.mesh.pp):
        ranks = (rank for replica in range(plan.mesh.dp) for rank in plan.team(replica, stage))
        team = [worker for worker in (plan.workers[rank] for rank in ranks) if worker in now]
        labels = (("stage", str(stage)),)
        if team:
            memory = max(now[worker].memory_bytes for worker in team)
            yield Sample(name="raymega_memory_bytes", value=memory, labels=labels)
        known = [worker for worker in team if worker in before]
        passed_s = sum(now[worker].all_s - before[worker].all_s for worker in known)
        if passed_s > 0:
            useful_s = sum(now[worker].useful_s - before[worker].useful_s for worker in known)
            share = min(1.0, max(0.0, useful_s / passed_s))  # a step that broke is taken back
            yield Sample(name="raymega_stage_busy_share", value=share, labels=labels)
