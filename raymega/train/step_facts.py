"""The decision of a step: one pure function of facts reduced over all workers, evaluated by each on the same bits.

    worker r:  Facts(norm^2 of its counted boxes, loss of its micro-batches, hash of its backwards, ...)
       merge:  summed in one place in a fixed order, spread as bytes
      decide:  Commit(clip, lr, ...)  |  Skip(reason)          for everyone, or RaymegaBug and no commit for anyone

Every (name, box) has one contributor to the norm. The sum of the backwards' hashes, the elements covered and the number
of contributors are constants of the step, so work that was lost or done twice is an error, never a wrong weight.
The reduced gradient is that of the mean over all trained tokens times the loss scale: the one division has been made
before. An overflow anywhere skips the step everywhere.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raymega.config.schema import TrainingConfig
from raymega.errors import RaymegaBug
from raymega.train.loss_scale import UNSCALED, LossScale, has_no_answer, is_dynamic, next_scale
from raymega.train.lr_schedule import lr_at

HASH_MODULUS = 1 << 64
CLIP_EPS = 1e-6  # as in torch and Megatron: keeps the factor finite

_HEAD = struct.Struct("<qqdQQQQqq")
_NOTHING_BAD = (-1, -1)
_LOSS = struct.Struct("<qdq")


Overflow = Literal["scaled", "final"] | None
"""Of a skipped step: the loss scale answers it, it cannot (the run is over), or there is no such scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchLoss:
    """Loss sum (nats) and trained tokens of one micro-batch."""

    microbatch: int
    loss_sum: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What some workers know of a step.

    Args:
        norm_sq: sum of squares of the reduced gradient over the boxes they count.
        losses: of the micro-batches whose loss they own, ascending.
        work_hash: sum mod 2^64 of the hashes of their backwards.
        elements: elements of the model in the boxes they count.
        contributors: boxes they count.
        bad: the first parameter with a gradient that is not finite, as (index among the model's, rank that has it).
    """

    step: int
    generation: int
    norm_sq: float
    losses: tuple[MicrobatchLoss, ...]
    work_hash: int
    elements: int
    contributors: int
    bad: tuple[int, int] | None = None

    @property
    def loss_sum(self) -> float:
        """Summed by micro-batch, so it does not hang on which worker had which."""
        return sum((loss.loss_sum for loss in self.losses), start=0.0)

    @property
    def tokens(self) -> int:
        return sum(loss.tokens for loss in self.losses)

    def pack(self) -> bytes:
        """Bytes; `unpack` gives equal facts."""
        head = _HEAD.pack(
            self.step, self.generation, self.norm_sq, self.work_hash, self.elements, self.contributors,
            len(self.losses), *(self.bad or _NOTHING_BAD),
        )  # fmt: skip
        return head + b"".join(_LOSS.pack(loss.microbatch, loss.loss_sum, loss.tokens) for loss in self.losses)

    @classmethod
    def unpack(cls, payload: bytes) -> "Facts":
        step, generation, norm_sq, work_hash, elements, contributors, num_losses, *bad = _HEAD.unpack_from(payload)
        rest = payload[_HEAD.size :]
        assert len(rest) == num_losses * _LOSS.size, "facts arrive whole"
        losses = tuple(
            MicrobatchLoss(microbatch=microbatch, loss_sum=loss_sum, tokens=tokens)
            for microbatch, loss_sum, tokens in _LOSS.iter_unpack(rest)
        )
        return cls(
            step=step, generation=generation, norm_sq=norm_sq, losses=losses, work_hash=work_hash, elements=elements,
            contributors=contributors, bad=None if tuple(bad) == _NOTHING_BAD else (bad[0], bad[1]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The constants of a step: what the merged facts must say, or nobody commits."""

    step: int
    generation: int
    work_hash: int
    elements: int
    contributors: int
    num_microbatches: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Apply the reduced gradient times `clip` with rate `lr`. `loss` is nats per trained token.

    Args:
        clip: takes the loss scale out too.
        grad_norm: without loss scale, before clipping.
        scale: after the step.
    """

    clip: float
    lr: float
    grad_norm: float
    loss: float
    tokens: int
    scale: LossScale = UNSCALED


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Apply nothing: weights, moments, counters and the rate's samples stay; the data moves on."""

    reason: str
    grad_norm: float
    loss: float
    tokens: int
    scale: LossScale = UNSCALED
    overflow: Overflow = None


def merge(parts: Sequence[Facts]) -> Facts:
    """Sum facts of disjoint groups of workers, in the order given.

    Raises: RaymegaBug if they are of different steps or generations, or two own the same micro-batch.
    """
    steps = {(part.step, part.generation) for part in parts}
    if len(steps) != 1:
        raise RaymegaBug(f"Facts of {sorted(steps)} (step, generation) met; they must be of one step.")
    losses = sorted((loss for part in parts for loss in part.losses), key=lambda loss: loss.microbatch)
    owned = [loss.microbatch for loss in losses]
    if len(set(owned)) != len(owned):
        raise RaymegaBug(f"Micro-batches {owned} of step {parts[0].step}: each has one owner of its loss.")
    return Facts(
        step=parts[0].step,
        generation=parts[0].generation,
        norm_sq=math.fsum(part.norm_sq for part in parts),
        losses=tuple(losses),
        work_hash=sum(part.work_hash for part in parts) % HASH_MODULUS,
        elements=sum(part.elements for part in parts),
        contributors=sum(part.contributors for part in parts),
        bad=min((part.bad for part in parts if part.bad is not None), default=None),
    )


def decide(
    facts: Facts, *, expected: Expected, training: TrainingConfig, samples: int, scale: LossScale = UNSCALED,
    names: Sequence[str] = (),
) -> Commit | Skip:  # fmt: skip
    """Rule on a step.

    Args:
        facts: merged over all workers of the plan.
        samples: samples of all committed steps, this one included, if it commits.
        scale: of the loss in this step.
        names: of the model's parameters, to say whose gradient is bad.
    Raises: RaymegaBug if the facts are not those of exactly the work of this step.
    """
    check_facts(facts, expected=expected)
    loss = facts.loss_sum / max(1, facts.tokens)
    grad_norm = math.sqrt(facts.norm_sq) / scale.scale if facts.norm_sq >= 0 else math.nan
    reason = _reason_to_skip(facts, names=names)
    after = next_scale(scale, overflow=reason is not None, training=training)
    if reason is not None:
        overflow = _overflow(scale, training=training)
        told = reason if overflow is None else f"{reason} at loss scale {scale.scale:g}"
        return Skip(
            reason=told, grad_norm=grad_norm, loss=loss, tokens=facts.tokens, scale=after, overflow=overflow
        )  # fmt: skip
    return Commit(
        clip=clip_factor(grad_norm, clip_grad=training.clip_grad) / scale.scale,
        lr=lr_at(training, samples=samples),
        grad_norm=grad_norm,
        loss=loss,
        tokens=facts.tokens,
        scale=after,
    )


def clip_factor(grad_norm: float, *, clip_grad: float) -> float:
    """What scales a gradient of `grad_norm` to at most `clip_grad`; 1 where it is shorter, or clip_grad is 0."""
    return min(1.0, clip_grad / (grad_norm + CLIP_EPS)) if clip_grad > 0 else 1.0


def _overflow(scale: LossScale, *, training: TrainingConfig) -> Overflow:
    if not is_dynamic(training):
        return None
    return "final" if has_no_answer(scale, training=training) else "scaled"


def _reason_to_skip(facts: Facts, *, names: Sequence[str]) -> str | None:
    bad = [loss.microbatch for loss in facts.losses if not math.isfinite(loss.loss_sum)]
    where = ""
    if facts.bad is not None:
        index, rank = facts.bad
        where = f", first that of {names[index] if index < len(names) else f'parameter {index}'} on rank {rank},"
    if bad:
        return f"the loss of micro-batches {bad} of step {facts.step} is not finite"
    if facts.bad is not None or not math.isfinite(facts.norm_sq):
        return f"a gradient of step {facts.step}{where} is not finite"
    if facts.tokens == 0:
        return f"step {facts.step} has no trained token"
    return None


def check_facts(facts: Facts, *, expected: Expected) -> None:
    """Hold merged facts against the constants of the step.

    Raises: RaymegaBug naming every fact that differs.
    """
    got = {
        "step": facts.step, "generation": facts.generation, "work hash": facts.work_hash,
        "elements": facts.elements, "contributors": facts.contributors, "tokens": facts.tokens,
        "micro-batches": [loss.microbatch for loss in facts.losses],
    }  # fmt: skip
    want = {
        "step": expected.step, "generation": expected.generation, "work hash": expected.work_hash,
        "elements": expected.elements, "contributors": expected.contributors, "tokens": expected.tokens,
        "micro-batches": list(range(expected.num_microbatches)),
    }  # fmt: skip
    wrong = [f"{name} {got[name]} instead of {want[name]}" for name in want if got[name] != want[name]]
    if wrong:
        raise RaymegaBug(
            f"Step {expected.step} cannot be committed: {', '.join(wrong)}. Some work was lost or counted twice.",
            step=expected.step,
        )
