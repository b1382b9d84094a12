"""What a plan makes of the facts of a step: the constants they must meet, the ruling, and how it is applied.

    facts of all --check--> constants of the plan --decide--> commit: the optimizer    skip: nothing, counted

Whoever has reduced a step can apply it later, from the same facts, to the same gradients: nothing else goes in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from raymega.config.schema import Config
from raymega.layout.param_layout import holdings
from raymega.layout.param_spec import ParamSpec
from raymega.pipeline.ledger import expected_work
from raymega.plan.plan import Plan
from raymega.train.lr_schedule import rated
from raymega.train.step_facts import Commit, Expected, Facts, Skip, decide
from raymega.worker.interface import Rates
from raymega.worker.state import TrainState


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What the facts of every step of a plan must say: all of the work once, every box of the model once.

    `names`: of the model's parameters.
    """

    work_hash: int
    elements: int
    contributors: int
    num_microbatches: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, specs: tuple[ParamSpec, ...], *, plan: Plan) -> "Constants":
        held = holdings(specs, plan)
        counted = {(holding.name, holding.box) for boxes in held for holding in boxes if holding.counted}
        return cls(
            work_hash=expected_work(
                num_microbatches=plan.num_microbatches, num_stages=len(plan.layers), tp=plan.mesh.tp
            ),
            elements=sum(prod(spec.shape) for spec in specs),
            contributors=len(counted),
            num_microbatches=plan.num_microbatches,
            names=tuple(spec.name for spec in specs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rules on the step after that of `state`; `constants` are of the plan by which the state is held.

    `rates`: those that were asked for beside the config.
    """

    config: Config
    state: TrainState
    constants: Constants
    rates: Callable[[], Rates]

    def expected(self, *, generation: int, tokens: int) -> Expected:
        """What the merged facts must say, or nobody commits."""
        return Expected(
            step=self.state.committed,
            generation=generation,
            work_hash=self.constants.work_hash,
            elements=self.constants.elements,
            contributors=self.constants.contributors,
            num_microbatches=self.constants.num_microbatches,
            tokens=tokens,
        )

    def decide(self, facts: Facts, *, expected: Expected) -> Commit | Skip:
        """The ruling. Raises: RaymegaBug if the facts are not those of exactly the work of this step."""
        trained = self.state.committed + 1 - self.state.skipped
        training = rated(self.config.training, self.rates(), step=self.state.committed + 1)
        return decide(
            facts, expected=expected, training=training, samples=trained * training.batch_size, scale=self.state.scale,
            names=self.constants.names,
        )  # fmt: skip

    def apply(self, ruling: Commit | Skip, *, decided_in: int) -> None:
        """The optimizer, or nothing on a skip; the state is then that of one step more."""
        commits = isinstance(ruling, Commit)
        for chunk in self.state.chunks.values():
            if isinstance(ruling, Commit):
                for piece in chunk.pieces:
                    piece.optimizer.apply(chunk.grad_of(piece), lr=ruling.lr, clip=ruling.clip)
                chunk.changed()
            if chunk.coding is not None:
                chunk.coding.unsent.end(commits=commits)
        self.state.skipped += not commits
        self.state.scale = ruling.scale
        self.state.committed += 1
        self.state.decided_in = decided_in

    def settle(self, facts: bytes) -> None:
        """Apply what others have decided, to the gradients that were reduced here before the generation broke."""
        known = Facts.unpack(facts)
        expected = self.expected(generation=known.generation, tokens=known.tokens)
        self.apply(self.decide(known, expected=expected), decided_in=known.generation)
