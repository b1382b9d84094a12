"""What a step of a plan takes, in parts."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """A step of a plan, in seconds; `phases` as in a worker's report, they add up to it.

    Args:
        pipeline_units: the pipeline's part in forwards of one block.
    """

    step_s: float
    pipeline_s: float
    pipeline_units: float
    phases: Mapping[str, float]
