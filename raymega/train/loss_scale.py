"""The scale of the loss in fp16, so that small gradients are not rounded to zero: what it is after each step.

    clean step       clean_steps + 1; a window full of them doubles the scale and refills hysteresis
    overflow         clean_steps = 0, hysteresis - 1; once that is used up, every overflow halves, down to a floor
    at the floor     an overflow that cannot halve any more has no answer: the run ends

    window 4, hysteresis 2      step      1   2   3   4   5   6   7   8   9  10  11
                                          .   .   .   .   !   .   !   !   .   .   .      ! overflow
                                scale  s  s   s   s  2s  2s  2s   s s/2 s/2 s/2 s/2

A pure function of which steps overflowed, so it is the same on all workers and can be found again from the record.
Sources: Micikevicius et al. 2018 (arXiv 1710.03740), section 3.2; hysteresis as in Megatron-LM's dynamic scaler.
"""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from raymega.config.schema import TrainingConfig

_KEYS = ("loss_scale", "loss_scale_clean_steps", "loss_scale_hysteresis")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScale:
    """State, like the weights.

    Args:
        scale: what the loss of the next step is multiplied with.
        clean_steps: in a row, since the last overflow or growth.
        hysteresis: overflows until one of them halves the scale; 0: it is used up.
    """

    scale: float = 1.0
    clean_steps: int = 0
    hysteresis: int = 0

    def to_scalars(self) -> dict[str, float]:
        """As the scalars of a checkpoint."""
        values = (self.scale, self.clean_steps, self.hysteresis)
        return {key: float(value) for key, value in zip(_KEYS, values, strict=True)}

    def to_words(self) -> tuple[int, int, int]:
        """As 64-bit integers; `of_words` gives an equal one."""
        (bits,) = struct.unpack("<q", struct.pack("<d", self.scale))
        return bits, self.clean_steps, self.hysteresis

    @classmethod
    def of_words(cls, words: tuple[int, int, int]) -> "LossScale":
        (scale,) = struct.unpack("<d", struct.pack("<q", words[0]))
        return cls(scale=scale, clean_steps=words[1], hysteresis=words[2])


UNSCALED = LossScale()


def is_dynamic(training: TrainingConfig) -> bool:
    """Whether steps change the scale."""
    return training.precision == "fp16" and training.loss_scale == "dynamic"


def first_scale(training: TrainingConfig) -> LossScale:
    """Before the first step: the config's in fp16, else 1."""
    if training.precision != "fp16":
        return UNSCALED
    scale = training.initial_loss_scale if training.loss_scale == "dynamic" else training.loss_scale
    return LossScale(scale=scale, hysteresis=training.hysteresis)


def scale_of_scalars(scalars: Mapping[str, float], *, training: TrainingConfig) -> LossScale:
    """Of a checkpoint; the first one where the checkpoint has none, or the scale is not dynamic."""
    if not is_dynamic(training) or not all(key in scalars for key in _KEYS):
        return first_scale(training)
    scale, clean_steps, hysteresis = (scalars[key] for key in _KEYS)
    return LossScale(scale=scale, clean_steps=int(clean_steps), hysteresis=int(hysteresis))


def next_scale(now: LossScale, *, overflow: bool, training: TrainingConfig) -> LossScale:
    """After a step."""
    if not is_dynamic(training):
        return now
    if overflow:
        left = max(0, now.hysteresis - 1)
        scale = now.scale if left else max(now.scale / 2, training.min_loss_scale)
        return LossScale(scale=scale, clean_steps=0, hysteresis=left)
    if now.clean_steps + 1 < training.loss_scale_window:
        return LossScale(scale=now.scale, clean_steps=now.clean_steps + 1, hysteresis=now.hysteresis)
    return LossScale(scale=now.scale * 2, clean_steps=0, hysteresis=training.hysteresis)


def has_no_answer(now: LossScale, *, training: TrainingConfig) -> bool:
    """Whether an overflow now finds the scale at its floor, and hysteresis used up."""
    return is_dynamic(training) and now.hysteresis <= 1 and now.scale <= training.min_loss_scale


def scale_after(
    first: LossScale, *, steps: range, overflowed: Collection[int], training: TrainingConfig
) -> LossScale:  # fmt: skip
    """After all of `steps`, of which some have `overflowed`; `first`: before them."""
    now = first
    for step in steps if is_dynamic(training) else ():
        now = next_scale(now, overflow=step in overflowed, training=training)
    return now
