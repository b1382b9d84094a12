"""The validation loss: forwards over the split, its sum and count gathered like the facts of a step.

The last batch is filled up with rows that no target counts of, so that shapes stay, and every row counts once.
"""

from collections.abc import Iterable

from raymega.config.schema import TrainingConfig
from raymega.train.step_facts import Facts
from raymega.worker.decide import sum_facts
from raymega.worker.execute import Executor
from raymega.worker.interface import EvalReport, StepBatch
from raymega.worker.world import World


def evaluate(
    batches: Iterable[StepBatch | None], *, executor: Executor, world: World, after_step: int
) -> EvalReport | None:
    """Run all batches forward; every worker gets the same report, or None once there is no batch for it.

    Raises: GroupBroken, CollectiveTimeout, StaleMessage if the world changed.
    """
    loss_sum, tokens = 0.0, 0
    for batch in batches:
        if batch is None:
            return None
        facts = sum_facts(_facts(executor, batch, world=world), world=world, check=_no_check)
        loss_sum, tokens = loss_sum + facts.loss_sum, tokens + facts.tokens
    return EvalReport(after_step=after_step, generation=world.generation, loss=loss_sum / max(1, tokens), tokens=tokens)


def is_due_after(committed: int, *, training: TrainingConfig) -> bool:
    """Whether the state of so many steps is evaluated."""
    every = training.eval_every
    return every > 0 and (committed % every == 0 or committed == training.steps)


def _facts(executor: Executor, batch: StepBatch, *, world: World) -> Facts:
    losses = executor.evaluate(batch).microbatch_losses()
    return Facts(
        step=batch.step, generation=world.generation, norm_sq=0.0, losses=losses if world.coord.shard == 0 else (),
        work_hash=0, elements=0, contributors=0,
    )  # fmt: skip


def _no_check(_: Facts) -> None:
    """A forward leaves no trace that could be wrong twice."""
