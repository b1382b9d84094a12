"""The next plan is prepared while the present one trains: nothing stops before everyone is warm.

    look     is another plan due?         the ladder is asked once for each state of the cluster (`control.proposing`)
             start who is missing         fresh workers for it, and standbys up to elastic.standbys
             all warm: choose a boundary  as far as workers have leave already, one step at least; no grants beyond it
             none in time: save           no plan is there before a node goes (`control.safekeeping`)
    proceed  at the boundary              the state moves (`control.moving`); before it, grants as ever

What is due follows from what is so - lost teams, nodes that are to go, wishes, free devices -, not from what has
happened: so a change that was disturbed is simply found again, or another one in its place.
"""

from dataclasses import dataclass, replace
from math import inf

from raymega.config.fault import are, counted
from raymega.control.changing import Change, MoveUnderway, Ways, Weighed
from raymega.control.commands import AssignPlan, Command, FeedFrom, StartWorkers
from raymega.control.decision import Brain, Decision, Moves
from raymega.control.granting import grant_on
from raymega.control.ladder import Rung
from raymega.control.proposing import Proposal, propose
from raymega.control.quiet import facts_of
from raymega.control.safekeeping import STAYS, keep_safe
from raymega.control.seating import number_of
from raymega.control.standing_by import standby_seats
from raymega.control.states import Moving, Training
from raymega.control.ways import around, transition_of, ways_of
from raymega.plan.plan import Plan

AGAIN_S = (
    30.0  # a guess: how long an answer of the ladder holds while nothing has changed; then twice as long, and so on
)
PATIENCE_S = 10.0  # a guess: how long a boundary may be put off so that no checkpoint is underway at it
MOST_ROLLBACKS = 3
ROUNDING_S = 1e-6  # so that it is asked at that beat, however its time is rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The training with whatever was begun beside it. `unanswered`: why no plan is there before a node goes."""

    training: Training
    commands: tuple[Command, ...] = ()
    reason: str = ""
    unanswered: str = ""


def proceed(brain: Brain, training: Training, now: float, *, reason: str = "") -> Decision:
    """Go on: grant, or at the boundary of a change, move."""
    looked = look(brain, training, now)
    training, told = looked.training, "; ".join(part for part in (reason, looked.reason) if part)
    change = training.change
    if change is not None and change.boundary == training.story.committed and _is_quiet(training, change, now):
        return _after(looked.commands, switch(training, change, now, reason=told))
    training, granted = grant_on(brain.rules, training)
    commands = (*granted, *looked.commands)  # leave first: the workers wait for it, nobody for a start
    return Decision(state=training, commands=commands, reason=told)


def look(brain: Brain, training: Training, now: float) -> Looked:
    """Find out whether another plan is due, and bring it nearer."""
    if brain.moves is None:
        return _kept_safe(brain, Looked(training=training), why=STAYS, now=now)
    looked = Looked(training=training)
    facts = facts_of(training)
    if training.weighed is None or not training.weighed.holds(facts, now):
        found = _weighed(brain, training, brain.moves, facts, now)
        looked = replace(_staffed(brain, found.training, now), reason=found.reason)
        if found.unanswered:
            looked = _kept_safe(brain, looked, why=found.unanswered, now=now)
    training = looked.training
    if training.change is not None:
        training = replace(training, change=_nearer(brain, training, training.change, now))
    return replace(looked, training=training)


def _kept_safe(brain: Brain, looked: Looked, *, why: str, now: float) -> Looked:
    kept = keep_safe(brain.rules, looked.training, why=why, now=now)
    commands = (*looked.commands, *kept.commands)
    return Looked(training=kept.training, commands=commands, reason=kept.reason or looked.reason)


def switch(training: Training, change: Change, now: float, *, reason: str) -> Decision:
    """Everyone stands at the boundary: let the state go over."""
    story = replace(training.story, generation=training.story.next_generation)
    story = story.owing(save.step for save in training.saves)
    if training.recent_step_s:
        story = with_step_price(replace(training, story=story)).story
    nodes = {seat.worker: seat.node for seat in training.seats}
    transition = transition_of(training, change.plan, nodes)
    move = MoveUnderway(change=change, transition=transition, step=story.committed, since=now)
    assign = AssignPlan(
        generation=story.generation, plan=change.plan, step=story.committed, checkpoint=None, move=transition,
        settle=story.decided,
    )  # fmt: skip
    told = f"at the boundary after step {story.committed} the state goes over to {change.plan.mesh}: {change.cause}"
    return Decision(
        state=Moving(story=story, seats=training.seats, plan=change.plan, move=move),
        commands=(assign, FeedFrom(step=story.committed)),
        reason="; ".join(part for part in (reason, told) if part),
    )


def with_step_price(training: Training) -> Training:
    """Note what a step of this plan takes, before it is left."""
    if not training.recent_step_s:
        return training
    steps = sorted(training.recent_step_s)
    outlook = training.story.outlook
    prices = outlook.prices.stepped(training.plan, steps[len(steps) // 2])
    return replace(training, story=replace(training.story, outlook=replace(outlook, prices=prices)))


def _weighed(brain: Brain, training: Training, moves: Moves, facts: tuple[object, ...], now: float) -> Looked:
    """Ask the ladder, unless transitions have broken lately."""
    outlook, last = training.story.outlook, training.weighed
    if outlook.rollbacks > MOST_ROLLBACKS or now < outlook.hold_until:
        again_t = outlook.hold_until if outlook.rollbacks <= MOST_ROLLBACKS else inf
        held = Weighed(facts=facts, pause_s=AGAIN_S, again_t=again_t)
        training = replace(training, change=None, weighed=held)
        lasts = bool(outlook.draining) and min(drain.by_t for drain in outlook.draining) < again_t
        return Looked(training=training, unanswered="changes of the plan broke lately" if lasts else "")
    same = last is not None and last.facts == facts
    ways = last.ways if last is not None and same else None
    ways = ways_of(brain, training, moves) if ways is None else ways
    found = propose(brain, with_step_price(training), ways, now)
    pause_s = 2 * last.pause_s if last is not None and same else AGAIN_S
    pause_s = pause_s if found.is_open else inf
    training = replace(
        training, weighed=Weighed(facts=facts, pause_s=pause_s, again_t=now + pause_s - ROUNDING_S, ways=ways)
    )
    before, change = training.change, found.change
    late = found.why_late(ways.seen.by_t, now) if ways.seen.by_t is not None else ""
    if change is not None and before is not None and change.plan == before.plan:
        return Looked(training=replace(training, change=replace(before, by_t=change.by_t)), unanswered=late)
    is_news = change is not None or before is not None or bool(training.plan.lost)
    reason = found.reason if is_news else _declined(training.plan, ways, found, last)
    return Looked(training=replace(training, change=change), reason=reason, unanswered=late)


def _declined(plan: Plan, ways: Ways, found: Proposal, last: Weighed | None) -> str:
    """Why devices stay unused over which a plan could be laid; said when they come, and not again."""
    if last is None or last.ways is None:
        return ""
    more = len(ways.seen.nodes) - len(last.ways.seen.nodes)
    if more <= 0 or not any(row.rung is Rung.FULL_RESHARD and row.plan not in (None, plan) for row in ways.rows):
        return ""
    return f"{counted(more, noun='more device')} {are(more)} there and {plan.mesh} stays: {found.reason}"


def _staffed(brain: Brain, training: Training, now: float) -> Looked:
    """Start whom the next plan lacks, and standbys."""
    ways = training.weighed.ways if training.weighed is not None else None
    seen, change = around(training) if ways is None else ways.seen, training.change
    busy = {*training.plan.living, *(change.plan.living if change is not None else ())}
    fresh = tuple(seat for seat in seen.free if change is not None and seat.worker in change.plan.living)
    spares = len([seat for seat in seen.own if seat.worker not in busy])
    wanted = max(0, brain.rules.standbys - spares)
    rest = [seat for seat in seen.free if seat not in fresh]
    staffed = [seat.node for seat in training.seats if seat.worker in busy]
    fresh += standby_seats(rest, wanted=wanted, tp=training.plan.mesh.tp, busy_nodes=staffed)
    if not fresh:
        return Looked(training=training)
    story = training.story
    story = replace(
        story,
        next_worker=max(number_of(seat.worker) for seat in fresh) + 1,
        outlook=story.outlook.with_started([seat.worker for seat in fresh], now),
    )
    training = replace(training, story=story, seats=(*training.seats, *fresh))
    return Looked(training=training, commands=(StartWorkers(seats=fresh),))


def _nearer(brain: Brain, training: Training, change: Change, now: float) -> Change | None:
    """Choose the boundary once everyone is warm, and no checkpoint would be in the way."""
    if change.boundary is not None:
        return change
    outlook = training.story.outlook
    unborn = {worker for worker, _ in outlook.unborn}
    if not unborn.isdisjoint(change.plan.living) or now < change.not_before:
        return change
    ready_t = now if change.ready_t is None else change.ready_t
    boundary = max(training.granted, training.story.committed + 1)
    if brain.rules.codes:  # nobody has begun it yet, so that all sum it in full
        boundary = max(training.granted, training.story.committed) + 1
    if boundary >= brain.rules.steps:
        return None
    hold = training.story.course.hold
    if hold is not None and boundary >= hold:  # a transition is certain only with the first leave after it
        return change
    waits = bool(training.saves) and now < ready_t + PATIENCE_S and not _is_urgent(change, now, slack_s=PATIENCE_S)
    return replace(change, ready_t=ready_t, boundary=None if waits else boundary)


def _is_quiet(training: Training, change: Change, now: float) -> bool:
    """Is nothing underway that would be lost with the generation? A deadline does not wait for a checkpoint."""
    if training.story.unwritten is not None:
        return False
    return not training.saves or _is_urgent(change, now, slack_s=0.0)


def _is_urgent(change: Change, now: float, *, slack_s: float) -> bool:
    return change.by_t is not None and now + 2 * change.predicted_s + slack_s >= change.by_t


def _after(first: tuple[Command, ...], decision: Decision) -> Decision:
    return replace(decision, commands=(*first, *decision.commands))
