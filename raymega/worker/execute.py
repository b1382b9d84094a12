"""Runs one worker's list of actions: the compute phase of a step, or an evaluation.

    2F5   x = ids of the batch, or inbox.take(1F5)     y = stage(x)        outbox.send(y), or the loss
    2B5   dy = inbox.take(3B5), or 1 / trained tokens  y.backward(dy)      outbox.send(dx)

Receives are posted ahead of their use and sends block nothing, so wires and arithmetic overlap. A pass is kept from
its forward to its backward and no longer. An action is written in the ledger after its last effect.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from raymega.comm.frames import Direction, Message
from raymega.comm.p2p import Expected, Inbox, Outbox
from raymega.errors import RaymegaBug
from raymega.model.backward import run_backward
from raymega.model.stage import PassContext, StageModel
from raymega.pipeline.actions import Action, Kind, Program, sink, source
from raymega.pipeline.ledger import Ledger
from raymega.train.step_facts import MicrobatchLoss
from raymega.worker.interface import MicrobatchRows, StepBatch
from raymega.worker.world import World


@dataclass(slots=True, kw_only=True)
class Computed:
    """What came of a program on this worker.

    Args:
        losses: micro-batch -> sum of its token losses, on the last stage.
        tokens: micro-batch -> trained tokens in it, on the last stage.
        spans: (action, start, end) of what was computed, by `time.perf_counter`.
        waits: (start, end) of waiting for a neighbour.
    """

    ledger: Ledger
    losses: dict[int, Tensor] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[Action, float, float]] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)

    @property
    def wait_s(self) -> float:
        """Seconds in which it waited for a neighbour."""
        return sum(end - began for began, end in self.waits)

    def microbatch_losses(self) -> tuple[MicrobatchLoss, ...]:
        """What it owns of the loss, ascending."""
        return tuple(
            MicrobatchLoss(microbatch=m, loss_sum=float(self.losses[m]), tokens=self.tokens[m])
            for m in sorted(self.losses)
        )


@dataclass(slots=True, kw_only=True)
class Pass:
    """A micro-batch between its forward and its backward on one virtual stage."""

    x: Tensor
    y: Tensor
    received: Message | None


class Executor:
    """One worker in one generation. `chunks`: virtual stage -> its model."""

    def __init__(
        self, *, world: World, chunks: Mapping[int, StageModel], inbox: Inbox, outbox: Outbox,
        seq_len: int, device: torch.device,
    ) -> None:  # fmt: skip
        self.world, self.chunks, self.seq_len, self.device = world, chunks, seq_len, device
        self._inbox, self._outbox = inbox, outbox
        self._num_stages = len(world.plan.layers)

    def train(self, batch: StepBatch) -> Computed:
        """Forwards and backwards of a step; gradients are added to the accumulators of the chunks."""
        return self._run(self.world.program, batch, message_step=batch.step, training=True)

    def evaluate(self, batch: StepBatch) -> Computed:
        """Forwards only; nothing is accumulated."""
        forwards = tuple(action for action in self.world.program if action.kind is Kind.F)
        with torch.no_grad():
            return self._run(forwards, batch, message_step=-1 - batch.step, training=False)

    def _run(self, program: Program, batch: StepBatch, *, message_step: int, training: bool) -> Computed:
        run = _Run(self, batch=batch, message_step=message_step, training=training)
        self._inbox.expect(self._expected(program, run))
        for action in program:
            if action.kind is Kind.F:
                run.forward(action)
            else:
                run.backward(action)
            run.out.ledger.record(action)
        with run.waiting():
            self._outbox.finish()
        return run.out

    def _expected(self, program: Program, run: "_Run") -> Iterator[Expected]:
        """The messages that `program` takes, in order."""
        rows = self.world.plan.microbatch_size
        for action in program:
            producer = self._remote(source(action, num_stages=self._num_stages))
            if producer is not None:
                group = self.world.pairs[self._holder(producer)]
                shape = self.chunks[action.stage].boundary_shape(rows, self.seq_len)
                yield Expected(
                    message=run.message(producer), group=group, src=1 - group.rank, shape=shape, dtype=torch.float32
                )

    def send(self, x: Tensor, action: Action, run: "_Run") -> None:
        """Send what `action` made to the stage that takes it in; the last stage turns round by itself."""
        consumer = self._remote(sink(action, num_stages=self._num_stages))
        if consumer is not None:
            group = self.world.pairs[self._holder(consumer)]
            self._outbox.send(x, run.message(action), group=group, dst=1 - group.rank)

    def take(self, action: Action, run: "_Run") -> tuple[Tensor | None, Message | None]:
        """What a neighbour made for `action`; None where the action has no input from outside."""
        producer = self._remote(source(action, num_stages=self._num_stages))
        if producer is None:
            return None, None
        message = run.message(producer)
        with run.waiting():
            return self._inbox.take(message), message

    def recycle(self, message: Message | None) -> None:
        if message is not None:
            self._inbox.recycle(message)

    def _remote(self, other: Action | None) -> Action | None:
        """`other`, if it is another worker's."""
        return other if other is not None and other.stage not in self.chunks else None

    def _holder(self, action: Action) -> str:
        return self.world.neighbour(microbatch=action.microbatch, stage=action.stage % self.world.plan.mesh.pp)


class _Run:
    """One program on one batch."""

    def __init__(self, executor: Executor, *, batch: StepBatch, message_step: int, training: bool) -> None:
        self._executor, self._batch, self._training = executor, batch, training
        self._message_step = message_step
        self._passes: dict[tuple[int, int], Pass] = {}
        self._weight = torch.tensor(1.0 / max(batch.trained_tokens, 1), device=executor.device)
        self.out = Computed(ledger=Ledger(step=batch.step, generation=executor.world.generation))

    def message(self, producer: Action) -> Message:
        direction: Direction = "F" if producer.kind is Kind.F else "B"
        return Message(
            step=self._message_step, microbatch=producer.microbatch, chunk=producer.stage, direction=direction
        )

    def forward(self, action: Action) -> None:
        chunk = self._executor.chunks[action.stage]
        x, received = self._executor.take(action, self)
        with self._span(action):
            if x is None:
                x = self._ids(self._rows(action.microbatch).ids[:, :-1])
            elif self._training:
                x = x.detach().requires_grad_()
            y = chunk.forward(x, self._context(action.microbatch))
            if chunk.head is not None:
                y = self._loss(chunk, y, microbatch=action.microbatch)
        self._executor.send(y, action, self)
        if self._training:
            self._passes[action.stage, action.microbatch] = Pass(x=x, y=y, received=received)
        else:
            self._executor.recycle(received)

    def backward(self, action: Action) -> None:
        dy, received = self._executor.take(action, self)
        kept = self._passes.pop((action.stage, action.microbatch))
        with self._span(action):
            run_backward(kept.y, grad=self._weight if dy is None else dy)
        dx = kept.x.grad
        if dx is not None:
            self._executor.send(dx, action, self)
        self._executor.recycle(received)
        self._executor.recycle(kept.received)

    def _loss(self, chunk: StageModel, y: Tensor, *, microbatch: int) -> Tensor:
        rows = self._rows(microbatch)
        mask = None if rows.mask is None else torch.from_numpy(rows.mask.copy()).to(self._executor.device)
        loss = chunk.loss_sum(y, self._ids(rows.ids[:, 1:]), mask)
        self.out.losses[microbatch] = loss.detach()
        self.out.tokens[microbatch] = rows.ids[:, 1:].size if rows.mask is None else int(rows.mask.sum())
        return loss

    def _rows(self, microbatch: int) -> MicrobatchRows:
        """The micro-batch's rows, held against the order of samples (law 2): a shifted batch never trains."""
        rows, plan = self._batch.microbatches[microbatch], self._executor.world.plan
        first = self._batch.step * plan.global_batch + microbatch * plan.microbatch_size
        if rows.samples[0] != first or rows.samples[-1] != first + plan.microbatch_size - 1:
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
        self.out.waits.append((began, time.perf_counter()))

    @contextmanager
    def _span(self, action: Action) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.out.spans.append((action, began, time.perf_counter()))
