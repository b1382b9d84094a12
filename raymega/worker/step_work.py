"""What a worker has done of one step, in whatever generations it did it.

    2F0 2B0 2F1 | the generation breaks       kept: ledger, gradients in the accumulators, loss of 0,
                |                                   the open pass of 1 (its input and its graph), the boundary log,
                |                                   what is put off of a backward in two parts
                | the next one begins         2B1 runs from the pass that is kept

It outlives a broken generation, so that finished work is done once (law 4). A step's end, or a move to another step,
drops it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from raymega.comm.frames import Message
from raymega.model.backward import Later
from raymega.pipeline.actions import Action, Kind
from raymega.pipeline.ledger import Ledger
from raymega.train.step_facts import MicrobatchLoss


@dataclass(slots=True, kw_only=True)
class Pass:
    """A micro-batch between its forward and its backward on one virtual stage; `received`: what x came in."""

    x: Tensor
    y: Tensor
    received: Message | None


@dataclass(slots=True, kw_only=True)
class Owed:
    """A backward of which the weights' part is to come; `received`: messages whose buffers it still reads."""

    later: Later
    received: tuple[Message | None, ...] = ()


@dataclass(slots=True, kw_only=True)
class StepWork:
    """Ledger, open passes and losses of a step.

    Args:
        owed: backwards of which the weights' part is to come, by (virtual stage, micro-batch), as passes are.
        losses: micro-batch -> sum of its token losses, on the last stage.
        tokens: micro-batch -> trained tokens in it, on the last stage.
        adding: a backward, or a part of one, has begun, and has not ended.
        spans: (action, start, end) of what was computed, by `time.perf_counter`.
        waits: (start, end) of waiting for a neighbour.
    """

    ledger: Ledger
    passes: dict[tuple[int, int], Pass] = field(default_factory=dict)
    owed: dict[tuple[int, int], Owed] = field(default_factory=dict)
    losses: dict[int, Tensor] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    adding: bool = False
    spans: list[tuple[Action, float, float]] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)

    @classmethod
    def begin(cls, *, step: int, generation: int) -> "StepWork":
        """Nothing is done yet of the step with index `step`."""
        return cls(ledger=Ledger(step=step, generation=generation))

    def keep(self, facts: Collection[Action], *, generation: int) -> "StepWork":
        """What stays of it in `generation`: of `facts` and nothing else. Receive buffers are the older generation's."""
        ledger = Ledger(step=self.ledger.step, generation=generation)
        for action in self.ledger.facts:
            if action in facts:
                ledger.record(action)
        forwards = {(a.stage, a.microbatch) for a in facts if a.kind is Kind.F}
        inputs = {(a.stage, a.microbatch) for a in facts if a.kind is Kind.I}
        losses = {m: loss for m, loss in self.losses.items() if any(at == m for _, at in forwards)}
        return StepWork(
            ledger=ledger,
            passes={at: Pass(x=p.x, y=p.y, received=None) for at, p in self.passes.items() if at in forwards},
            owed={at: Owed(later=owed.later) for at, owed in self.owed.items() if at in inputs},
            losses=losses,
            tokens={m: self.tokens[m] for m in losses},
        )

    @property
    def wait_s(self) -> float:
        """Seconds in which it waited for a neighbour."""
        return sum(end - began for began, end in self.waits)

    @property
    def done_at(self) -> float:
        """When its newest action ended, by `time.perf_counter`; 0 before the first."""
        return max((end for _, _, end in self.spans), default=0.0)

    def microbatch_losses(self) -> tuple[MicrobatchLoss, ...]:
        """What it owns of the loss, ascending."""
        return tuple(
            MicrobatchLoss(microbatch=m, loss_sum=float(self.losses[m]), tokens=self.tokens[m])
            for m in sorted(self.losses)
        )
