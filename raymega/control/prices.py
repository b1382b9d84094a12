"""What a change of plan costs here: guesses at first, and what was measured since.

    pause of a transition = groups made anew + bytes of the busiest worker / bytes a second
    a step of a plan      = its work (`plan.uneven.work_of`) x seconds of one block and micro-batch

Each measurement counts half, so that the newest ones count most and one slow moment does not rule.
"""

from dataclasses import dataclass, replace

from raymega.plan.plan import Plan
from raymega.plan.uneven import work_of

LEAST_BYTES = 1_000_000  # fewer tell of the way, not of the width


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Times in seconds.

    Args:
        regroup_s: from a boundary, or the first sign of a loss, until everyone is in place; moved bytes left out.
        bytes_per_s: that one worker receives in a transition.
        start_s: from the order until a fresh worker is up.
        work_s: of one block on one micro-batch; 0: no step was measured, and a unit of work counts as a second.
    """

    regroup_s: float = 0.5  # a guess: a bare regroup of four takes 0.1 s
    bytes_per_s: float = 1e9  # a guess: a network of 10 Gbit/s; one that is too low would never be measured
    start_s: float = 8.0  # a guess: a process that loads torch
    work_s: float = 0.0

    def step_s(self, plan: Plan) -> float:
        """A step of `plan`."""
        return (self.work_s or 1.0) * work_of(plan)

    def pause_s(self, num_bytes: int) -> float:
        """A transition in which the busiest worker has so much to receive or to send."""
        return self.regroup_s + num_bytes / self.bytes_per_s

    def regrouped(self, seconds: float) -> "Prices":
        return replace(self, regroup_s=(self.regroup_s + seconds) / 2)

    def started(self, seconds: float) -> "Prices":
        return replace(self, start_s=(self.start_s + seconds) / 2)

    def moved(self, num_bytes: int, seconds: float) -> "Prices":
        """Note what one worker received in so many seconds."""
        if num_bytes < LEAST_BYTES or seconds <= 0:
            return self
        return replace(self, bytes_per_s=(self.bytes_per_s + num_bytes / seconds) / 2)

    def stepped(self, plan: Plan, step_s: float) -> "Prices":
        """Note a step of `plan`; the newest counts alone."""
        return replace(self, work_s=step_s / work_of(plan))
