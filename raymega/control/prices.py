"""What a change of plan costs here: guesses at first, and what was measured since.

    pause of a transition = groups made anew + bytes of the busiest worker / bytes a second
    a step of a plan      = its work (`plan.uneven.work_of`) x its samples at a time x seconds of one block and sample
                            measured on plans of its kind; where there was none yet, on the newest one of any

Each measurement counts half, so that the newest ones count most and one slow moment does not rule. Of steps the newest
counts alone, kind by kind: what a plan short of a team takes tells little of what the whole one would.
"""

from dataclasses import dataclass, replace

from raymega.mesh import Mesh
from raymega.plan.plan import Plan
from raymega.plan.stages import Layers
from raymega.plan.uneven import work_of

LEAST_BYTES = 1_000_000  # fewer tell of the way, not of the width
MOST_KINDS = 8

PlanKind = tuple[Mesh, Layers, tuple[int, ...], int, str]
"""Mesh, layers, micro-batches of each stage's busiest team, samples in one, schedule: what a step's time hangs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Times in seconds.

    Args:
        regroup_s: from a boundary, or the first sign of a loss, until everyone is in place; moved bytes left out.
        bytes_per_s: that one worker receives in a transition.
        start_s: from the order until a fresh worker is up.
        paces: (kind of plan, seconds of one block on one sample), the newest first; none: no step was measured.
    """

    regroup_s: float = 0.5  # a guess: a bare regroup of four takes 0.1 s
    bytes_per_s: float = 1e9  # a guess: a network of 10 Gbit/s; one that is too low would never be measured
    start_s: float = 8.0  # a guess: a process that loads torch
    paces: tuple[tuple[PlanKind, float], ...] = ()

    def step_s(self, plan: Plan) -> float:
        """A step of `plan`; before any was measured, a unit of work counts as a second."""
        if not self.paces:
            return work_of(plan)
        _, newest_s = self.paces[0]
        return dict(self.paces).get(_kind(plan), newest_s) * _load(plan)

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
        """Note a step of `plan`; of its kind the newest counts alone."""
        kind = _kind(plan)
        others = tuple(pace for pace in self.paces if pace[0] != kind)
        return replace(self, paces=((kind, step_s / _load(plan)), *others)[:MOST_KINDS])


def _kind(plan: Plan) -> PlanKind:
    return plan.mesh, plan.layers, plan.busiest, plan.microbatch_size, plan.schedule


def _load(plan: Plan) -> float:
    """Blocks times samples, one after the other."""
    return work_of(plan) * plan.microbatch_size
