"""Which plan is to follow the one in force? The rungs of `control.ways`, priced, and the one that costs least.

    ready    workers that are not up, nodes that are not steady yet    the run goes on meanwhile
    pause    bytes of the busiest worker, a regroup                    nothing is trained
    step     the work of the plan                                      times the steps that are likely to follow

The prices are of `control.prices`, the choice is that of `control.ladder`.
"""

from dataclasses import dataclass
from math import ceil

from raymega.control.changing import Around, Change, Way, Ways
from raymega.control.decision import Brain
from raymega.control.ladder import Barred, Choice, Offer, choose, horizon
from raymega.control.states import Training
from raymega.plan.plan import Plan

IN_TIME_S = 1.0  # a guess: what is kept back of a deadline for what nobody has foreseen


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What came of it. `change`: None: the plan stays; `choice`: None: there was nothing to choose from.

    `is_open`: time alone may bring another answer; not where one rung is open, whatever it costs. `brief`: the first of
    many reasons.
    """

    change: Change | None
    choice: Choice | None
    reason: str
    is_open: bool = True
    brief: str = ""

    def why_late(self, by_t: float, now: float) -> str:
        """Why nothing is done by then; empty if it is."""
        if self.choice is None:
            return self.brief or self.reason
        needed_s, left_s = self.choice.offer.ready_s + self.choice.offer.pause_s, by_t - now
        return f"{left_s:.1f} s are left where {needed_s:.1f} s are needed" if needed_s + IN_TIME_S > left_s else ""


def propose(brain: Brain, training: Training, ways: Ways, now: float) -> Proposal:
    """The plan that costs least over the next steps. `ways`: of the cluster and the plan as they are now."""
    story, prices, seen = training.story, training.story.outlook.prices, ways.seen
    steps_left = brain.rules.steps - max(training.granted, story.committed + 1)
    if steps_left < 1:
        return Proposal(
            change=None, choice=None, reason=f"no step is left: the next boundary is the end, at {brain.rules.steps}"
        )
    rows = [_priced(brain, training, seen, way, now) for way in ways.rows]
    offers = _in_time([row for row in rows if isinstance(row, Offer)], seen, now)
    barred = [row for row in rows if isinstance(row, Barred)]
    if not offers:
        why = [f"{row.rung}: {row.reason}" for row in barred]
        return Proposal(change=None, choice=None, reason="; ".join(why), brief=why[0])
    step_s = prices.step_s(training.plan)
    mean_s = story.outlook.mean_s(now)
    lasting = horizon(step_s=step_s, mean_time_between_changes_s=mean_s, steps_left=steps_left)
    # What changes before a plan is ready has cost nothing; from then on it is as long to the next change as ever.
    before = max(ceil(offer.ready_s / (offer.meanwhile_step_s or step_s)) for offer in offers)
    horizon_steps = min(steps_left, before + lasting)
    choice = choose([*offers, *barred], horizon_steps=horizon_steps)
    new = ways.plan(choice.offer.rung)
    if new == training.plan:
        return Proposal(change=None, choice=choice, reason=choice.reason, is_open=len(offers) > 1)
    change = Change(
        rung=choice.offer.rung,
        cause=_cause(training, seen),
        plan=new,
        predicted_s=choice.offer.pause_s,
        predicted_step_s=choice.offer.step_s if prices.paces else 0.0,
        since=now,
        not_before=_steady_t(brain, training, new, seen),
        by_t=seen.by_t,
    )
    return Proposal(change=change, choice=choice, reason=f"{change.cause}: {choice.reason}")


def _priced(brain: Brain, training: Training, seen: Around, way: Way, now: float) -> Offer | Barred:
    if way.plan is None:
        return Barred(rung=way.rung, reason=way.barred)
    prices = training.story.outlook.prices
    step_s = prices.step_s(way.plan)
    if way.plan == training.plan:
        return Offer(rung=way.rung, step_s=step_s)
    running_s = prices.step_s(training.plan)
    at_boundary_s = max(1, training.granted - training.story.committed) * running_s
    ready_s = max(_warm_s(training, way.plan, now), _steady_t(brain, training, way.plan, seen) - now, at_boundary_s)
    return Offer(
        rung=way.rung, step_s=step_s, pause_s=prices.pause_s(way.num_bytes), ready_s=ready_s,
        meanwhile_step_s=running_s,
    )  # fmt: skip


def _in_time(offers: list[Offer], seen: Around, now: float) -> list[Offer]:
    """Those that are done before the deadline; where none is, the one that is done first."""
    if seen.by_t is None or not offers:
        return offers
    left_s = seen.by_t - now - IN_TIME_S
    timely = [offer for offer in offers if offer.ready_s + offer.pause_s <= left_s]
    return timely or [min(offers, key=lambda offer: offer.ready_s + offer.pause_s)]


def _warm_s(training: Training, new: Plan, now: float) -> float:
    """Until everyone of `new` is up."""
    outlook, living = training.story.outlook, set(new.living)
    begun = [started_t for worker, started_t in outlook.unborn if worker in living]
    waits = [outlook.prices.start_s - (now - started_t) for started_t in begun]
    if living - {worker for worker, _ in outlook.unborn} - {seat.worker for seat in training.seats}:
        waits.append(outlook.prices.start_s)
    return max(0.0, *waits) if waits else 0.0


def _steady_t(brain: Brain, training: Training, new: Plan, seen: Around) -> float:
    """From when on all nodes that the plan grows onto have been there long enough."""
    outlook, nodes = training.story.outlook, seen.nodes
    fresh = set(new.living) - set(training.plan.living)
    return max((outlook.steady_t(nodes[worker], steady_s=brain.rules.steady_s) for worker in fresh), default=0.0)


def _cause(training: Training, seen: Around) -> str:
    outlook, plan = training.story.outlook, training.plan
    if seen.leaving:
        return "; ".join(f"{drain.node} is to go: {drain.cause}" for drain in outlook.draining)
    if outlook.wish.pending:
        return f"as asked for, {outlook.wish}"
    if not plan.lost:
        return "there are devices to grow onto"
    return f"{len(plan.lost)} of its teams {'is' if len(plan.lost) == 1 else 'are'} lost"
