"""Runs one worker's list of actions: the compute phase of a step, or an evaluation.

    2F5   x = ids of the batch, or inbox.take(1F5)     y = stage(x)        outbox.send(y), or the loss
    2I5   dy = inbox.take(3B5), or 1 / trained tokens  dx of y.backward    outbox.send(dx)
    2W5   what that adds to gradients
    2B5   2I5 and 2W5 at once: dx leaves as soon as it is there, since others wait for that alone

What a worker hands on to itself, where virtual stages fold, it finds in its own log, as a repair would.
Receives are posted ahead of their use and sends block nothing, so wires and arithmetic overlap. A pass is kept from
its forward to its backward and no longer. An action is written in the ledger after its last effect.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from raymega.comm.frames import Direction, Message
from raymega.comm.p2p import Expected, Inbox, Outbox
from raymega.errors import RaymegaBug
from raymega.layout.data_order import NO_ROW
from raymega.model.backward import Later, let_go, run_backward
from raymega.model.stage import PassContext, StageModel
from raymega.pipeline.actions import Action, Kind, Program, last_passes, sink, source
from raymega.plan.repairs import RepairOrder
from raymega.worker.interface import MicrobatchRows, StepBatch
from raymega.worker.step_work import Owed, Pass, StepWork
from raymega.worker.world import World


class Executor:
    """One worker in one generation. `chunks`: virtual stage -> its model; `begins`: told each action of a step;
    `needed`: told (virtual stage, part) before a forward reads its weights, as `StageModel.forward` says."""

    def __init__(
        self, *, world: World, chunks: Mapping[int, StageModel], inbox: Inbox, outbox: Outbox,
        seq_len: int, device: torch.device, begins: Callable[[Action], None], needed: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self.world, self.chunks, self.seq_len, self.device = world, chunks, seq_len, device
        self._begins, self.needed = begins, needed
        self._inbox, self._outbox = inbox, outbox
        self._num_stages = len(world.plan.layers)
        self._token = torch.zeros(1, device=device)

    def train(self, batch: StepBatch, *, work: StepWork, loss_scale: float, passed: Callable[[int, int], None]) -> None:
        """The whole program of a step; gradients are added to the accumulators of the chunks.

        `passed`: told (virtual stage, part) while its last backward runs, as `StageModel.forward` says.
        """
        self._run(self.world.program, batch, work=work, training=True, loss_scale=loss_scale, passed=passed)

    def repair(self, batch: StepBatch, *, work: StepWork, order: RepairOrder, loss_scale: float) -> None:
        """Finish a step that broke: what is missing, with what the logs of others hold."""
        self._run(order.program, batch, work=work, training=True, order=order, loss_scale=loss_scale)

    def evaluate(self, batch: StepBatch) -> StepWork:
        """Forwards only; nothing is accumulated."""
        work = StepWork.begin(step=batch.step, generation=self.world.generation)
        forwards = tuple(action for action in self.world.program if action.kind is Kind.F)
        with torch.no_grad():
            self._run(forwards, batch, work=work, training=False)
        return work

    def _run(
        self, program: Program, batch: StepBatch, *, work: StepWork, training: bool, order: RepairOrder | None = None,
        loss_scale: float = 1.0, passed: Callable[[int, int], None] | None = None,
    ) -> None:  # fmt: skip
        run = _Run(self, batch=batch, work=work, training=training, order=order, loss_scale=loss_scale)
        run.passed = {at: partial(passed, at[0]) for at in last_passes(program)} if passed is not None else {}
        self._inbox.expect(self._expected(program, run))
        self._resend(run, after=None)
        for action in program:
            if training:
                self._begins(action)
            match action.kind:
                case Kind.F:
                    run.forward(action)
                case Kind.W:
                    run.add_owed(action)
                case _:
                    run.backward(action)
            self._resend(run, after=action)
        with run.waiting():
            self._outbox.finish()

    def _resend(self, run: "_Run", *, after: Action | None) -> None:
        """What the log holds for those who lost it, each stream in the order in which it is taken."""
        for resend in run.order.resends if run.order is not None else ():
            if resend.after == after:
                group = self.world.pairs[resend.receiver]
                self._outbox.send_again(run.message(resend.action), group=group, dst=1 - group.rank)

    def _expected(self, program: Program, run: "_Run") -> Iterator[Expected]:
        """The messages that `program` takes, in order."""
        for action in program:
            producer = source(action, num_stages=self._num_stages)
            if producer is not None and self._is_remote(producer, run):
                group = self.world.pairs[run.sender(producer) or self._holder(producer)]
                yield Expected(
                    message=run.message(producer), group=group, src=1 - group.rank, shape=self._shape(action),
                    dtype=self.chunks[action.stage].dtype,
                )  # fmt: skip

    def keep(self, x: Tensor | None, action: Action, run: "_Run") -> None:
        """Log what `action` made, if another virtual stage takes it in; the last one turns round by itself.

        From there on the log holds an output and nobody else: of it only shape and graph are left. A gradient may be
        what the weights' part reads too.
        """
        consumer = sink(action, num_stages=self._num_stages)
        if x is not None and consumer is not None and consumer.stage != action.stage:
            self._outbox.keep(x, run.message(action))
            if action.kind is Kind.F:
                let_go(x)

    def send(self, action: Action, run: "_Run") -> None:
        """Send what is logged of `action` to the stage that takes it in."""
        consumer = sink(action, num_stages=self._num_stages)
        if consumer is None or not self._is_remote(consumer, run):
            return
        if run.order is None or action in run.order.taken:
            group = self.world.pairs[self._holder(consumer)]
            self._outbox.send_again(run.message(action), group=group, dst=1 - group.rank)

    def take(self, action: Action, run: "_Run") -> tuple[Tensor | None, Message | None]:
        """What a neighbour made for `action`; None where the action has no input from outside."""
        producer = source(action, num_stages=self._num_stages)
        if producer is None or producer.stage == action.stage:
            return None, None
        message = run.message(producer)
        if not self._is_remote(producer, run):
            return self._outbox.kept(message, shape=self._shape(action), dtype=self.chunks[action.stage].dtype), None
        with run.waiting():
            return self._inbox.take(message), message

    def meet(self) -> None:
        """Wait until every shard of the team has what it needs for a backward: none of them then ends in the middle."""
        self.world.team.all_reduce(self._token)

    def recycle(self, message: Message | None) -> None:
        if message is not None:
            self._inbox.recycle(message)

    def _is_remote(self, other: Action, run: "_Run") -> bool:
        """Whether `other` is another worker's, or comes out of another's log."""
        return other.stage not in self.chunks or run.sender(other) is not None

    def _shape(self, action: Action) -> tuple[int, ...]:
        """Of what `action` takes in."""
        return self.chunks[action.stage].boundary_shape(self.world.plan.microbatch_size, self.seq_len)

    def _holder(self, action: Action) -> str:
        return self.world.neighbour(microbatch=action.microbatch, stage=self.world.plan.stage_of(action.stage))


class _Run:
    """One program on one batch."""

    def __init__(
        self, executor: Executor, *, batch: StepBatch, work: StepWork, training: bool, order: RepairOrder | None,
        loss_scale: float,
    ) -> None:  # fmt: skip
        self._executor, self._batch, self._work, self._training = executor, batch, work, training
        self.order = order
        self.passed: Mapping[tuple[int, int], Callable[[int], None]] = {}
        self._message_step = batch.step if training else -1 - batch.step
        self._weight = torch.tensor(loss_scale / max(batch.trained_tokens, 1), device=executor.device)

    def sender(self, producer: Action) -> str | None:
        """Who sends it out of a log, if it is not made in this run."""
        return self.order.senders.get(producer) if self.order is not None else None

    def message(self, producer: Action) -> Message:
        direction: Direction = "F" if producer.kind is Kind.F else "B"
        return Message(
            step=self._message_step, microbatch=producer.microbatch, chunk=producer.stage, direction=direction
        )

    def forward(self, action: Action) -> None:
        only = self.order is not None and action in self.order.forwards_only
        x, received = self._executor.take(action, self)
        with self._span(action):
            if x is None:
                x = self._ids(self._rows(action.microbatch).ids[:, :-1])
            elif self._training and not only:
                x = x.detach().requires_grad_()
            with torch.set_grad_enabled(self._training and not only):
                y = self._forward(action, x)
        self._executor.keep(y, action, self)
        if only or not self._training:
            self._executor.recycle(received)
        else:
            self._work.passes[action.stage, action.microbatch] = Pass(x=x, y=y, received=received)
        if not only:
            self._work.ledger.record(action)
        self._executor.send(action, self)

    def _forward(self, action: Action, x: Tensor) -> Tensor:
        chunk = self._executor.chunks[action.stage]
        passed = self.passed.get((action.stage, action.microbatch))
        needed = partial(self._executor.needed, action.stage)
        y = chunk.forward(x, self._context(action.microbatch), passed=passed, needed=needed)
        if chunk.head is None:
            return y
        rows = self._rows(action.microbatch)
        mask = None if rows.mask is None else torch.from_numpy(rows.mask.copy()).to(self._executor.device)
        loss = chunk.loss_sum(y, self._ids(rows.ids[:, 1:]), mask)
        self._work.losses[action.microbatch] = loss.detach()
        self._work.tokens[action.microbatch] = rows.ids[:, 1:].size if rows.mask is None else int(rows.mask.sum())
        return loss

    def backward(self, action: Action) -> None:
        dy, received = self._executor.take(action, self)
        at = action.stage, action.microbatch
        kept = self._work.passes[at]
        if dy is not None:
            self._executor.meet()
        with self._span(action):
            self._work.adding = True  # until it has ended, the accumulators are nobody's, nor is the pass
            dx, later = self._through(kept, action, dy=self._weight if dy is None else dy)
            self._executor.keep(dx, action, self)
            del dx
            self._executor.send(action, self)  # a send that breaks undoes nothing: it is logged
            owed = Owed(later=later, received=(received, kept.received))
            if action.kind is Kind.B:
                self._add(owed, at)
            self._work.adding = False
        del self._work.passes[at]
        if action.kind is Kind.I:
            self._work.owed[at] = owed
        self._work.ledger.record(action)

    def _through(self, kept: Pass, action: Action, *, dy: Tensor) -> tuple[Tensor | None, Later]:
        """The gradient of the pass's input, and what is put off; of a whole backward only where that costs nothing."""
        chunk = self._executor.chunks[action.stage]
        if action.kind is Kind.I or (chunk.parts_cost_nothing and kept.x.requires_grad):
            return chunk.backward_to_input(kept.y, x=kept.x, grad=dy)
        run_backward(kept.y, grad=dy)
        return kept.x.grad, Later()

    def add_owed(self, action: Action) -> None:
        at = action.stage, action.microbatch
        with self._span(action):
            self._work.adding = True
            self._add(self._work.owed[at], at)
            self._work.adding = False
        del self._work.owed[at]
        self._work.ledger.record(action)

    def _add(self, owed: Owed, at: tuple[int, int]) -> None:
        """The weights' part of a backward, which is its last."""
        owed.later.run()
        for message in owed.received:
            self._executor.recycle(message)
        if at in self.passed:
            self.passed[at](0)

    def _rows(self, microbatch: int) -> MicrobatchRows:
        """The micro-batch's rows, held against the order of samples (law 2): a shifted batch never trains."""
        rows, plan = self._batch.microbatches[microbatch], self._executor.world.plan
        first = self._batch.step * plan.global_batch + microbatch * plan.microbatch_size
        is_right = rows.samples == np.arange(first, first + plan.microbatch_size)
        if self._batch.split == "valid":
            is_right |= rows.samples == NO_ROW  # fills up an evaluation's last batch
        if not is_right.all():
            raise RaymegaBug(
                f"micro-batch {microbatch} of step {self._batch.step} came with samples {rows.samples.tolist()}; "
                f"it has those from {first} on."
            )
        return rows

    def _ids(self, ids: np.ndarray) -> Tensor:
        return torch.from_numpy(ids.astype(np.int64)).to(self._executor.device)

    def _context(self, microbatch: int) -> PassContext:
        """Positions of the micro-batch's samples are arithmetic, so stages without a batch know them too."""
        plan = self._executor.world.plan
        first = self._batch.step * plan.global_batch + microbatch * plan.microbatch_size
        samples = torch.arange(first, first + plan.microbatch_size)
        return PassContext(step=self._batch.step, samples=samples, training=self._training)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for a neighbour."""
        began = time.perf_counter()
        yield
        self._work.waits.append((began, time.perf_counter()))

    @contextmanager
    def _span(self, action: Action) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._work.spans.append((action, began, time.perf_counter()))
