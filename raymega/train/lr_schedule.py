"""The learning rate as a function of samples, so that another batch size, dp or micro-batch does not move it.

    lr |   /^^^^\\__            warm-up   lr s / warmup_samples
       |  /        \\__         constant  lr
       | /            \\____    linear    lr -> min_lr, along a line
       +-+------------+---- s   cosine    lr -> min_lr, along half a cosine      both end at decay_samples
         warm-up      end

`samples` are those of all committed steps, the one being decided included: the first step of a warm-up has a rate above
zero, and metrics line k shows the rate at k batches. A skipped step adds none, though the data moves on.
Source: Loshchilov and Hutter 2017 (arXiv 1608.03983).
"""

import math
from collections.abc import Iterable

from raymega.config.schema import TrainingConfig


def lr_at(training: TrainingConfig, *, samples: int) -> float:
    """The rate of the update that brings the committed samples to `samples`."""
    if samples < training.warmup_samples:
        return training.lr * samples / training.warmup_samples
    share_left = _share_left(training, samples=samples)
    if share_left == 1.0:
        return training.lr
    return training.min_lr + (training.lr - training.min_lr) * share_left


def rated(training: TrainingConfig, rates: Iterable[tuple[int, float]], *, step: int) -> TrainingConfig:
    """The schedule of step number `step` (from 1), where another `lr` was asked for after some steps."""
    asked = [lr for after_step, lr in rates if after_step < step]
    return training.model_copy(update={"lr": asked[-1]}) if asked else training


def _share_left(training: TrainingConfig, *, samples: int) -> float:
    """From 1 at the end of the warm-up to 0 at the end of the schedule."""
    if training.lr_schedule == "constant":
        return 1.0
    end = training.decay_samples or training.steps * training.batch_size
    done = (samples - training.warmup_samples) / max(1, end - training.warmup_samples)
    done = min(done, 1.0)
    return 1.0 - done if training.lr_schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
