"""What is known of a run from the turns of its loop: the figures behind the console, the summary and the status.

A value that grows with each turn, so that the client of a run, a file of turns and a test all show the same.
"""

from dataclasses import dataclass, field, replace

from raymega.config.schema import Config
from raymega.control.commands import AssignPlan, Finish, WriteStep
from raymega.control.goodput import CATEGORIES, Goodput
from raymega.control.loop import Turn
from raymega.control.states import GENERATIONS, Seat, State, Story, plan_of, seats_of
from raymega.driver.records.exposure import Exposure
from raymega.metrics import Gauges, StepRecord, flops_per_s
from raymega.plan.cluster import NodeId, is_spot
from raymega.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What does not change during a run.

    Args:
        flops_per_token: forward and backward, of `model_shape.token_flops`.
        peak_flops_per_s: of a device; None where it is not known.
        unigram_entropy: nats per token of a model that only counts; None where it is not known.
    """

    name: str
    run_dir: str
    config: Config
    flops_per_token: int
    peak_flops_per_s: float | None = None
    unigram_entropy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of the worker that holds most, and what its device (or machine) has."""

    used_bytes: int = 0
    total_bytes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run up to a turn.

    Args:
        began_t: when the first turn came.
        state: None before the first turn.
        first, last: the first and the newest step of this controller.
        validated: the newest step that was evaluated.
        generations: that were made after the first of their launch.
        exposure: of the gradient sums of all steps of this controller.
        changes: generations that were made to go on as another plan, with nothing broken.
    """

    goodput: Goodput
    began_t: float
    state: State | None = None
    plan: Plan | None = None
    seats: tuple[Seat, ...] = ()
    first: StepRecord | None = None
    last: StepRecord | None = None
    validated: StepRecord | None = None
    generations: int = 0
    finish: Finish | None = None
    exposure: Exposure = field(default_factory=Exposure)
    changes: int = 0

    @property
    def recoveries(self) -> int:
        """Generations that were made because something was lost, or a step was left."""
        return self.generations - self.changes

    @classmethod
    def begin(cls, t: float) -> "Progress":
        return cls(goodput=Goodput(t=t), began_t=t)

    @property
    def story(self) -> Story | None:
        return self.state.story if self.state is not None else None

    @property
    def spot(self) -> frozenset[NodeId]:
        """Its nodes that may be taken back at any time."""
        nodes = self.story.nodes if self.story is not None else ()
        return frozenset(node.node for node in nodes if is_spot(dict(node.labels)))

    def after(self, turn: Turn) -> "Progress":
        """The run after one more turn."""
        state, commands = turn.decision.state, turn.decision.commands
        records = records_of(turn)
        is_first = turn.before.story.generation % GENERATIONS == 0
        assigned = [command for command in commands if isinstance(command, AssignPlan) and not is_first]
        evaluated = [record for record in records if record.val_loss is not None]
        return replace(
            self,
            goodput=self.goodput.after(turn.before, turn.event, turn.t),
            state=state,
            exposure=self.exposure.after(turn.event),
            plan=plan_of(state) or self.plan,
            seats=seats_of(state) or self.seats,
            first=self.first or next(iter(records), None),
            last=records[-1] if records else self.last,
            validated=evaluated[-1] if evaluated else self.validated,
            generations=self.generations + len(assigned),
            changes=self.changes + sum(one.move is not None and one.move.version is None for one in assigned),
            finish=next((command for command in commands if isinstance(command, Finish)), self.finish),
        )

    def then(self, later: "Progress") -> "Progress":
        """The run after another launch of it; the time between them is nobody's."""
        return replace(
            later,
            goodput=self.goodput.then(later.goodput),
            began_t=self.began_t,
            state=later.state or self.state,
            plan=later.plan or self.plan,
            seats=later.seats or self.seats,
            first=self.first or later.first,
            last=later.last or self.last,
            validated=later.validated or self.validated,
            generations=self.generations + later.generations,
            finish=later.finish or self.finish,
            exposure=self.exposure.then(later.exposure),
            changes=self.changes + later.changes,
        )

    def gauges(self, record: StepRecord, *, facts: Facts, memory: Memory) -> Gauges:
        """What is shown beside a step that has just been recorded."""
        devices = len(self.plan.living) if self.plan is not None else 1
        return Gauges(
            flops_per_s=flops_per_s(
                tokens_per_s=record.tokens_per_s, flops_per_token=facts.flops_per_token, devices=devices
            ),
            peak_flops_per_s=facts.peak_flops_per_s,
            memory_bytes=memory.used_bytes,
            memory_total_bytes=memory.total_bytes,
            bubble=self.goodput.last_bubble,
            goodput=self.goodput.share,
        )


def records_of(turn: Turn) -> tuple[StepRecord, ...]:
    """The steps that a turn records."""
    return tuple(command.record for command in turn.decision.commands if isinstance(command, WriteStep))


def figures_of(record: StepRecord, progress: Progress) -> dict[str, float]:
    """The figures of a step, by the names under which they are drawn."""
    spent = progress.goodput
    figures = {
        "loss/train": record.loss,
        "optimizer/grad_norm": record.grad_norm,
        "optimizer/lr": record.lr,
        "throughput/tokens_per_s": record.tokens_per_s,
        "throughput/tokens_total": record.tokens_total,
        "time/step_s": record.step_s,
        "time/bubble": spent.last_bubble,
        "goodput/all": spent.share,
        **{f"goodput/{name}": spent.share_of(name) for name in CATEGORIES},
    }
    return figures if record.val_loss is None else figures | {"loss/valid": record.val_loss}
