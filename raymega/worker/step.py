"""A step is a transaction: compute -> reduce -> decide -> apply. Until it is decided, nothing of the state is written.

compute   the program's actions; gradients are accumulated, boundary tensors are kept in the log
reduce    out of place, over team, ring and tied ends
decide    facts of all workers -> one rule on the same bits; recorded under the lock that a new generation takes
apply     the optimizer; the state is now that of the next step. A skip leaves all of it as it was.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import torch

from raymega.config.schema import Config
from raymega.layout.param_layout import holdings
from raymega.layout.param_spec import ParamSpec
from raymega.pipeline.ledger import expected_work
from raymega.plan.plan import Plan
from raymega.train.grad_norm import sum_of_squares
from raymega.train.step_facts import Commit, Expected, Facts, Skip, check_facts, decide
from raymega.worker.decide import sum_facts
from raymega.worker.execute import Computed, Executor
from raymega.worker.interface import StepBatch
from raymega.worker.reduce import reduce_gradients
from raymega.worker.state import TrainState
from raymega.worker.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What the facts of every step of a plan must say: all of the work once, every box of the model once."""

    work_hash: int
    elements: int
    contributors: int

    @classmethod
    def of(cls, specs: tuple[ParamSpec, ...], *, plan: Plan) -> "Constants":
        held = holdings(specs, plan)
        leaders = [rank for stage in range(plan.mesh.pp) for rank in plan.team(plan.leader(stage), stage)]
        counted = [holding for rank in leaders for holding in held[rank] if holding.counted]
        return cls(
            work_hash=expected_work(
                num_microbatches=plan.num_microbatches, num_stages=len(plan.layers), tp=plan.mesh.tp
            ),
            elements=sum(prod(spec.shape) for spec in specs),
            contributors=len(counted),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a worker needs to do the steps of one generation.

    Args:
        decided: records the decision of a step under the generation's lock; false if the generation is over.
        phase: told the name of each phase as it begins.
    """

    config: Config
    world: World
    state: TrainState
    executor: Executor
    constants: Constants
    device: torch.device
    decided: Callable[[int], bool]
    phase: Callable[[str], None]

    def run(self, batch: StepBatch) -> "Done | None":
        """Do the step after `state.committed`; None if the generation ended before it was decided.

        Raises: GroupBroken, CollectiveTimeout, StaleMessage if the world changed; RaymegaBug if work was lost.
        """
        clock = _Clock(self.phase)
        clock.begin("compute")
        self.state.zero_grad()
        computed = self.executor.train(batch)
        clock.begin("reduce")
        reduce_gradients(self.state, world=self.world)
        clock.begin("decide")
        ruling = self._ruling(batch, computed)
        if not self.decided(self.state.committed + 1):
            return None
        clock.begin("apply")
        self._apply(ruling)
        clock.end()
        seconds = {name: end - began for name, began, end in clock.phases}
        seconds |= {"compute": seconds["compute"] - computed.wait_s, "wait_peer": computed.wait_s}
        return Done(ruling=ruling, computed=computed, seconds=seconds, phases=tuple(clock.phases))

    def _ruling(self, batch: StepBatch, computed: Computed) -> Commit | Skip:
        expected = Expected(
            step=self.state.committed,
            generation=self.world.generation,
            work_hash=self.constants.work_hash,
            elements=self.constants.elements,
            contributors=self.constants.contributors,
            num_microbatches=self.world.plan.num_microbatches,
            tokens=batch.trained_tokens,
        )

        def check(total: Facts) -> None:
            check_facts(total, expected=expected)

        facts = sum_facts(self._facts(computed), world=self.world, check=check, device=self.device)
        training = self.config.training
        trained = self.state.committed + 1 - self.state.skipped
        # stages between the ends have no batch; the first stage has held the tokens against its own
        known = expected if batch.microbatches else replace(expected, tokens=facts.tokens)
        return decide(facts, expected=known, training=training, samples=trained * training.batch_size)

    def _facts(self, computed: Computed) -> Facts:
        shard, counts = self.world.coord.shard, self.world.is_leader
        contributors, elements = self.state.num_counted if counts else (0, 0)
        return Facts(
            step=self.state.committed,
            generation=self.world.generation,
            norm_sq=self._norm_sq() if counts else 0.0,
            losses=computed.microbatch_losses() if shard == 0 else (),
            work_hash=computed.ledger.work(shard=shard),
            elements=elements,
            contributors=contributors,
        )

    def _norm_sq(self) -> float:
        return sum(
            sum_of_squares(chunk.reduced_grad, ranges=chunk.model.flat.counted_ranges())
            for chunk in self.state.chunks.values()
        )

    def _apply(self, ruling: Commit | Skip) -> None:
        if isinstance(ruling, Commit):
            for chunk in self.state.chunks.values():
                chunk.optimizer.apply(chunk.reduced_grad, lr=ruling.lr, clip=ruling.clip)
        else:
            self.state.skipped += 1
        self.state.committed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A decided and applied step.

    Args:
        seconds: by phase, waiting for neighbours apart from computing.
        phases: (phase, start, end), by `time.perf_counter`.
    """

    ruling: Commit | Skip
    computed: Computed
    seconds: dict[str, float]
    phases: tuple[tuple[str, float, float], ...]


class _Clock:
    """When each phase began and ended."""

    def __init__(self, phase: Callable[[str], None]) -> None:
        self.phases: list[tuple[str, float, float]] = []
        self._phase, self._name, self._began = phase, "", 0.0

    def begin(self, name: str) -> None:
        self.end()
        self._phase(name)
        self._name, self._began = name, time.perf_counter()

    def end(self) -> None:
        if self._name:
            self.phases.append((self._name, self._began, time.perf_counter()))
