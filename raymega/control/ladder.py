"""Which way out of a loss costs least? Every rung of the recovery ladder, priced over the next steps.

    rung              runs meanwhile as         stands still for             then a step takes
    keep_rerouting    -                         nothing                      longer at the stages that lost teams
    take_spare        rerouted, until warm      its state, a regroup         what it took
    replan_uneven     rerouted                  layers that move             as even as layers and quotas allow
    full_reshard      rerouted                  all boxes that move          what the other mesh takes
    peer_copy         nothing: state is lost    copies back, and a replay    what the plan made of it takes
    storage           nothing                   a load, and a replay         the same

    seconds = seconds until ready, running or idle + pause + replayed steps + the steps of the horizon that are left

Higher rungs disturb less, so a lower one has to win by a margin: no thrashing for a per cent. What a rung costs is put
in as plain numbers, and comes out beside what it did cost.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from raymega.config.fault import counted
from raymega.errors import StateLost

MARGIN = 0.02  # a guess: above the noise of a step's time, below any gain worth a move


class Rung(StrEnum):
    """In the order of the ladder."""

    KEEP_REROUTING = "keep rerouting"
    TAKE_SPARE = "take in a spare"
    REPLAN_UNEVEN = "re-plan with uneven stages"
    FULL_RESHARD = "reshard fully"
    PEER_COPY = "peer copies and replay"
    STORAGE = "storage and replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one rung would cost.

    Args:
        step_s: a step after it.
        pause_s: nothing is trained for so long, regroup included.
        replay_steps: steps that have to be done again.
        ready_s: it can be done so much later; what is built beside the run in the meantime costs nothing.
        meanwhile_step_s: a step until then; None: the run stands still.
    """

    rung: Rung
    step_s: float
    pause_s: float = 0.0
    replay_steps: int = 0
    ready_s: float = 0.0
    meanwhile_step_s: float | None = None

    def seconds(self, horizon_steps: int) -> float:
        """Until `horizon_steps` steps beyond the present one are committed."""
        before = 0
        if self.meanwhile_step_s is not None:
            before = min(horizon_steps, math.ceil(self.ready_s / self.meanwhile_step_s))
        if before == horizon_steps and before > 0:
            return before * (self.meanwhile_step_s or 0.0)
        waiting_s = self.ready_s if self.meanwhile_step_s is None else before * self.meanwhile_step_s
        return waiting_s + self.pause_s + (self.replay_steps + horizon_steps - before) * self.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    """A rung that is not open, and why."""

    rung: Rung
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The rung taken and its price over the horizon; `rejected`: every other one with its price or what bars it."""

    offer: Offer
    predicted_s: float
    reason: str
    rejected: tuple[tuple[Rung, str], ...]


def choose(rungs: Iterable[Offer | Barred], *, horizon_steps: int, margin: float = MARGIN) -> Choice:
    """Take the rung that costs least over the horizon; a lower one only if it saves more than `margin` of the price.

    Args:
        rungs: each at most once, in any order.
        horizon_steps: steps until the world is likely to change again.
    Raises:
        StateLost: no rung is open.
    """
    given = sorted(rungs, key=lambda row: list(Rung).index(row.rung))
    offers = [row for row in given if isinstance(row, Offer)]
    barred = [row for row in given if isinstance(row, Barred)]
    if not offers:
        why = "; ".join(f"{row.rung}: {row.reason}" for row in barred)
        raise StateLost(f"No way leads on from here. {why}. Start the run anew, or bring back its checkpoint.")
    best = offers[0]
    for offer in offers[1:]:
        if offer.seconds(horizon_steps) < (1 - margin) * best.seconds(horizon_steps):
            best = offer
    predicted_s = best.seconds(horizon_steps)
    others = [(o.rung, f"{o.seconds(horizon_steps):.1f} s") for o in offers if o is not best]
    return Choice(
        offer=best,
        predicted_s=predicted_s,
        reason=_reason(best, predicted_s, horizon_steps, others),
        rejected=(*others, *((row.rung, row.reason) for row in barred)),
    )


def rerouted_step_s(step_s: float, *, replicas: int, living: Sequence[int]) -> float:
    """A step whose lost teams' micro-batches are shared by their peers: as slow as the stage that lost most.

    Args:
        replicas: teams of each stage in the plan.
        living: teams of each stage that are left; at least one.
    """
    return step_s * replicas / min(living)


def shared_step_s(step_s: float, *, devices: int, left: int, unevenness: float = 1.0) -> float:
    """A step on `left` of `devices`, with the work shared out; `unevenness`: the slowest stage over the average one."""
    return step_s * devices / left * unevenness


def move_s(bytes_by_worker: Iterable[int], *, bytes_per_s: float) -> float:
    """Copies between workers, all at once: as long as the worker with most to send or to receive."""
    return max(bytes_by_worker, default=0) / bytes_per_s


def horizon(*, step_s: float, mean_time_between_changes_s: float, steps_left: int) -> int:
    """Steps that a choice is likely to last, at least one where any is left."""
    return min(steps_left, max(1, round(mean_time_between_changes_s / step_s)))


def _reason(best: Offer, predicted_s: float, horizon_steps: int, others: Sequence[tuple[Rung, str]]) -> str:
    parts = [f"{best.rung}: {predicted_s:.1f} s for the next {counted(horizon_steps, noun='step')}"]
    if best.pause_s:
        parts.append(f"a pause of {best.pause_s:.1f} s")
    if best.replay_steps:
        parts.append(f"{counted(best.replay_steps, noun='step')} done again")
    if others:
        parts.append("instead of " + ", ".join(f"{price} ({rung})" for rung, price in others))
    return "; ".join(parts)
