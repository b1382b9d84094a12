"""What is known of a committed step: one line of `metrics.jsonl`.

Loss in nats per trained token over the global batch; times in seconds. A value that is not finite is written as null.
"""

import math
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One committed step. The keys of the line are the fields' names, in this order.

    Args:
        step: committed steps after it, from 1.
        grad_norm: before clipping.
        tokens: trained tokens of this step; `tokens_total`: of all steps up to it.
        first_sample: position of the step's first sample from 0, never reset by epochs.
        mesh: as `dp=2 tp=2 pp=2`.
        val_loss: where the step was evaluated; absent from the line elsewhere.
        t: unix time of the commit.
    """

    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    tokens_total: int
    first_sample: int
    samples: int
    step_s: float
    tokens_per_s: float
    mesh: str
    generation: int
    skipped: bool
    loss_scale: float
    t: float
    val_loss: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The line as plain data."""
        line = {field.name: _finite(getattr(self, field.name)) for field in fields(self)}
        if self.val_loss is None:
            del line["val_loss"]
        return line

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> "StepRecord":
        """Read a line back; null where a number belongs is not-a-number."""
        numbers = ("loss", "grad_norm", "val_loss")
        known: dict[str, Any] = {**line, **{key: math.nan for key in numbers if line.get(key, 0.0) is None}}
        return cls(**known)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
