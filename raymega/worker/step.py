"""A step is a transaction: compute -> reduce -> decide -> apply. Until it is decided, nothing of the state is written.

compute   the program's actions; gradients are accumulated, boundary tensors are kept in the log
reduce    out of place, over team, ring and tied ends
decide    facts of all workers -> one rule on the same bits; recorded under the lock that a new generation takes
apply     the optimizer; the state is now that of the next step. A skip leaves all of it as it was.
gather    where the state is cut: the weights that it makes, from whoever holds the pieces, under the next forward
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import isfinite

import torch

from raymega.comm.frames import BufferPool
from raymega.comm.p2p import Inbox, Outbox
from raymega.model.flat_params import ranges_of
from raymega.plan.repairs import RepairOrder
from raymega.train.grad_norm import sum_of_squares
from raymega.train.step_facts import Commit, Facts, Skip, check_facts
from raymega.worker.buckets import BUCKET_BYTES, Bucket, buckets_of
from raymega.worker.chaos import Chaos
from raymega.worker.decide import sum_facts
from raymega.worker.execute import Executor
from raymega.worker.gather import Weights
from raymega.worker.interface import Decision, StepBatch
from raymega.worker.reduce import GradientSums
from raymega.worker.ruling import Rule
from raymega.worker.state import TrainState
from raymega.worker.step_work import StepWork
from raymega.worker.world import World

RECEIVES_AHEAD = 2  # posted before they are taken: the one in use and the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a worker needs to do the steps of one generation.

    Args:
        decided: records the decision of a step under the generation's lock; false if the generation is over.
        phase: told the name of each phase as it begins.
        buckets: what is summed at once.
        bucket: told the number of each gradient sum as it begins.
        weights: what passes read, where it is made of pieces.
    """

    world: World
    state: TrainState
    executor: Executor
    rule: Rule
    decided: Callable[[Decision], bool]
    phase: Callable[[str], None]
    buckets: tuple[Bucket, ...]
    bucket: Callable[[int], None]
    weights: Weights

    @classmethod
    def build(
        cls, rule: Rule, *, world: World, outbox: Outbox, device: torch.device, chaos: Chaos,
        decided: Callable[[Decision], bool], phase: Callable[[str], None],
    ) -> "Step":  # fmt: skip
        """For the state of `rule`, in a world of its own plan."""
        inbox = Inbox(pool=BufferPool(device=device), generation=world.generation, ahead=RECEIVES_AHEAD)
        chunks = {v: chunk.model for v, chunk in rule.state.chunks.items()}
        weights = Weights(rule.state, world=world, bucket_bytes=BUCKET_BYTES)
        executor = Executor(
            world=world, chunks=chunks, inbox=inbox, outbox=outbox, seq_len=rule.config.data.seq_len, device=device,
            begins=chaos.action, needed=weights.need,
        )  # fmt: skip
        buckets = buckets_of(rule.state, bucket_bytes=BUCKET_BYTES)
        plain = (b.num_bytes for b in buckets if rule.state.chunks[b.stage].coding is None)
        world.ring.reserve(0 if rule.state.is_cut else sum(plain))
        return cls(
            world=world, state=rule.state, executor=executor, rule=rule, decided=decided, phase=phase,
            buckets=buckets, bucket=chaos.bucket, weights=weights,
        )  # fmt: skip

    def run(
        self, batch: StepBatch, *, work: StepWork, order: RepairOrder | None = None, full: bool = False
    ) -> "Done | None":
        """Do the step after `state.committed`; None if the generation ended before it was decided.

        Args:
            work: what is done of it already, and is added to.
            order: what is left of it, if it broke in an older generation; None: all of it.
            full: its gradients are summed in full, where replicas otherwise send fewer bits.

        Raises: GroupBroken, CollectiveTimeout, StaleMessage if the world changed; RaymegaBug if work was lost.
        """
        clock, scale = _Clock(self.phase), self.state.scale.scale
        clock.begin("compute")
        self.weights.waits.clear()
        if order is None or order.anew or not work.ledger.facts:
            self.state.zero_grad()
        sums = GradientSums(self.state, world=self.world, buckets=self.buckets, begins=self.bucket, full=full)
        if order is None:
            self.executor.train(batch, work=work, loss_scale=scale, passed=sums.passed)
        else:
            self.executor.repair(batch, work=work, order=order, loss_scale=scale)
        self.weights.finish()  # of a worker that had no pass to read them
        clock.begin("reduce")
        hidden = sums.begun_before(time.perf_counter())
        sums.finish()
        clock.begin("decide")
        facts, ruling = self._ruling(batch, work)
        decision = Decision(step=self.state.committed + 1, generation=self.world.generation, facts=facts.pack())
        if not self.decided(decision):
            return None
        clock.begin("apply")
        self.rule.apply(ruling, decided_in=decision.generation)
        clock.end()
        seconds = {name: end - began for name, began, end in clock.phases}
        gathers = tuple(("gather", began, end) for began, end in self.weights.waits)
        gather_s = sum(end - began for _, began, end in gathers)
        seconds |= {"compute": seconds["compute"] - work.wait_s - gather_s, "wait_peer": work.wait_s}
        seconds |= {"gather": gather_s} if self.state.is_cut else {}
        seconds |= {"hidden_reduce": sum(end - began for began, end in hidden)}
        return Done(
            ruling=ruling, facts=decision.facts, work=work, loss_scale=scale, seconds=seconds,
            phases=(*clock.phases, *gathers), hidden=hidden,
        )  # fmt: skip

    def gather(self, done: "Done") -> "Done":
        """Begin to make whole weights of what was applied; where the state is not cut, there is nothing to do.

        Raises: GroupBroken if someone is lost: the step is done, and weights are gathered again.
        """
        if not self.state.is_cut or isinstance(done.ruling, Skip):
            return done
        clock = _Clock(self.phase)
        clock.begin("gather")
        self.weights.begin()
        clock.end()
        (phase,) = clock.phases
        seconds = {**done.seconds, "gather": done.seconds["gather"] + phase[2] - phase[1]}
        return replace(done, seconds=seconds, phases=(*done.phases, phase))

    def _ruling(self, batch: StepBatch, work: StepWork) -> tuple[Facts, Commit | Skip]:
        expected = self.rule.expected(generation=self.world.generation, tokens=batch.trained_tokens)

        def check(total: Facts) -> None:
            check_facts(total, expected=expected)

        facts = sum_facts(self._facts(work), world=self.world, check=check)
        # stages between the ends have no batch; the first stage has held the tokens against its own
        known = expected if batch.microbatches else replace(expected, tokens=facts.tokens)
        return facts, self.rule.decide(facts, expected=known)

    def _facts(self, work: StepWork) -> Facts:
        shard, spoken = self.world.coord.shard, self.world.pieces
        counted = [p for params, _ in self.state.gradients(spoken) for p in params if p.counted and p.box.num_elements]
        norm_sq = self._norm_sq(spoken, counted=True)
        # other holders have the same sums; what this shard holds as others do may differ after a fault
        is_finite = isfinite(norm_sq + self._norm_sq(spoken, counted=False))
        return Facts(
            step=self.state.committed,
            generation=self.world.generation,
            norm_sq=norm_sq,
            losses=work.microbatch_losses() if shard == 0 else (),
            work_hash=work.ledger.work(shard=shard),
            elements=sum(param.box.num_elements for param in counted),
            contributors=len(counted),
            bad=None if is_finite else self._first_bad(spoken),
        )

    def _norm_sq(self, pieces: Collection[int], *, counted: bool) -> float:
        """Of the elements that count, or of those that other shards or ends count."""
        return sum(
            sum_of_squares(grad, ranges=ranges_of(params, counted=counted))
            for params, grad in self.state.gradients(pieces)
        )

    def _first_bad(self, pieces: Collection[int]) -> tuple[int, int] | None:
        """The first parameter of the model whose gradient is not finite here, and this rank."""
        names = self.rule.constants.names
        bad = (
            names.index(param.spec.name)
            for params, grad in self.state.gradients(pieces)
            for param in params
            if not param.view(grad).isfinite().all()
        )
        index = min(bad, default=None)
        return None if index is None else (index, self.world.plan.mesh.rank(self.world.coord))


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A decided and applied step.

    Args:
        facts: what it was decided on, as bytes.
        loss_scale: in this step.
        seconds: by phase, waiting for neighbours apart from computing.
        phases: (phase, start, end), by `time.perf_counter`.
        hidden: the stretch, if there was one, in which sums of gradients were underway and backwards too.
    """

    ruling: Commit | Skip
    facts: bytes
    work: StepWork
    loss_scale: float
    seconds: dict[str, float]
    phases: tuple[tuple[str, float, float], ...]
    hidden: tuple[tuple[float, float], ...]


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
