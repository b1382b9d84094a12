"""Which plan is to follow the one in force? Every rung of the ladder as a plan, or why it is not open.

    plan in force  w0 w1 | w2 --   seats  w0 w1 w2 w4(warm)    n1 has a free device, n2 is to go
    keep rerouting        the same, or without the teams on nodes that are to go
    take in a spare       their places, and those of lost teams, to others: warm ones first, else fresh ones
    re-plan unevenly      all warm teams, layers by the number of teams that a stage has
    reshard fully         what the planner lays over all that is there

The prices are of `control.prices`, the choice is that of `control.ladder`. All of it is asked at a boundary of a run
that trains, so every box has its holder: copies and storage are not needed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from raymega.control.changing import Change
from raymega.control.decision import Brain, Moves
from raymega.control.fitting import fitting
from raymega.control.ladder import Barred, Choice, Offer, Rung, choose, horizon
from raymega.control.seating import free_seats
from raymega.control.states import Seat, Training
from raymega.errors import PlanError, StateLost
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.staying import staying
from raymega.plan.transition import Transition
from raymega.plan.uneven import Team, uneven_plan, with_teams, without_teams

IN_TIME_S = 1.0  # a guess: what is kept back of a deadline for what nobody has foreseen


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What there is to plan with.

    Args:
        own: seats on nodes that stay: of the plan's workers, then of warm ones, then of those that are starting.
        free: what could be started.
        leaving: living teams that have a worker on a node that is to go.
        by_t: when the first of these nodes is gone.
    """

    own: tuple[Seat, ...]
    free: tuple[Seat, ...]
    leaving: tuple[Place, ...]
    by_t: float | None

    @property
    def nodes(self) -> dict[WorkerId, str]:
        return {seat.worker: seat.node for seat in (*self.own, *self.free)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What came of it. `change`: None: the plan stays; `choice`: None: there was nothing to choose from."""

    change: Change | None
    choice: Choice | None
    reason: str


def around(training: Training) -> Around:
    """Look for devices; nodes on which a worker did not come to life are left out."""
    story, outlook = training.story, training.story.outlook
    living = set(training.plan.living)

    def order(seat: Seat) -> tuple[bool, bool]:
        return seat.worker not in living, not outlook.is_born(seat.worker)

    own = sorted((seat for seat in training.seats if seat.node not in outlook.leaving), key=order)
    nodes = {seat.worker: seat.node for seat in training.seats}
    leaving = tuple(
        place
        for place in training.plan.teams
        if any(nodes[training.plan.workers[rank]] in outlook.leaving for rank in training.plan.team(*place))
    )
    at = {nodes[training.plan.workers[rank]] for place in leaving for rank in training.plan.team(*place)}
    by_t = min((drain.by_t for drain in outlook.draining if drain.node in at), default=None)
    free = free_seats(training.seats, story=story, avoided=story.avoided | outlook.leaving)
    return Around(own=tuple(own), free=free, leaving=leaving, by_t=by_t)


def propose(brain: Brain, training: Training, moves: Moves, now: float) -> Proposal:
    """The plan that costs least over the next steps."""
    story, prices = training.story, training.story.outlook.prices
    seen = around(training)
    steps_left = brain.rules.steps - max(training.granted, story.committed + 1)
    if steps_left < 1:
        return Proposal(change=None, choice=None, reason="no step is left after the next boundary")
    plans = _plans(training, seen, moves)
    rows = {rung: _priced(brain, training, moves, seen, rung=rung, found=found, now=now) for rung, found in plans}
    offers = _in_time([row for row in rows.values() if isinstance(row, Offer)], seen, now)
    barred = [row for row in rows.values() if isinstance(row, Barred)]
    if not offers:
        return Proposal(change=None, choice=None, reason="; ".join(f"{row.rung}: {row.reason}" for row in barred))
    step_s = prices.step_s(training.plan)
    mean_s = story.outlook.mean_s(now)
    lasting = horizon(step_s=step_s, mean_time_between_changes_s=mean_s, steps_left=steps_left)
    # What changes before a plan is ready has cost nothing; from then on it is as long to the next change as ever.
    before = max(ceil(offer.ready_s / (offer.meanwhile_step_s or step_s)) for offer in offers)
    horizon_steps = min(steps_left, before + lasting)
    choice = choose([*offers, *barred], horizon_steps=horizon_steps)
    new = dict(plans)[choice.offer.rung]
    assert isinstance(new, Plan), "what is offered is a plan"
    if new == training.plan:
        return Proposal(change=None, choice=choice, reason=choice.reason)
    change = Change(
        rung=choice.offer.rung,
        cause=_cause(training, seen),
        plan=new,
        predicted_s=choice.offer.pause_s,
        predicted_step_s=choice.offer.step_s if prices.work_s else 0.0,
        since=now,
        not_before=_steady_t(brain, training, new, seen),
        by_t=seen.by_t,
    )
    return Proposal(change=change, choice=choice, reason=f"{change.cause}: {choice.reason}")


def transition_of(training: Training, new: Plan, nodes: dict[WorkerId, str]) -> Transition:
    """From the plan in force to `new`."""
    here = nodes | {seat.worker: seat.node for seat in training.seats}
    node_of = {worker: here[worker] for worker in (*training.plan.living, *new.living)}
    return Transition(old=training.plan, senders=training.plan.living, node_of=node_of)


def _plans(training: Training, seen: Around, moves: Moves) -> list[tuple[Rung, Plan | str]]:
    return [
        (Rung.KEEP_REROUTING, _kept(training, seen)),
        (Rung.TAKE_SPARE, _spared(training, seen)),
        (Rung.REPLAN_UNEVEN, _uneven(training, seen)),
        (Rung.FULL_RESHARD, _resharded(training, seen, moves)),
        (Rung.PEER_COPY, "every box has a holder"),
        (Rung.STORAGE, "every box has a holder"),
    ]


def _kept(training: Training, seen: Around) -> Plan | str:
    wish = training.story.outlook.wish
    if wish.pending:
        return f"asked for: {wish}"
    return without_teams(training.plan, seen.leaving) or "a stage has all its teams on nodes that are to go"


def _spared(training: Training, seen: Around) -> Plan | str:
    """Lost places and those to be left, filled one by one: where none is warm, with those that are not."""
    plan, outlook = training.plan, training.story.outlook
    if outlook.wish.pending:
        return f"asked for: {outlook.wish}"
    places = sorted((*plan.lost, *seen.leaving), key=lambda place: (_living_at(plan, seen, place[1]), place))
    if outlook.wish.devices is not None:
        staying_on = len(plan.teams) - len(seen.leaving)
        places = places[: max(0, outlook.wish.devices // plan.mesh.tp - staying_on)]
    if not places:
        return "no place is to be filled"
    others = [seat for seat in (*seen.own, *seen.free) if seat.worker not in plan.living]
    warm = [seat for seat in others if outlook.is_born(seat.worker) and seat in seen.own]
    teams = teams_of(warm, tp=plan.mesh.tp) or teams_of(others, tp=plan.mesh.tp)
    if not teams:
        return "no worker stands by, and no device is free"
    filled = dict(zip(places, teams, strict=False))
    rest = [place for place in seen.leaving if place not in filled]
    return without_teams(with_teams(plan, filled), rest) or "not every stage would have a team"


def _uneven(training: Training, seen: Around) -> Plan | str:
    plan, outlook = training.plan, training.story.outlook
    if outlook.wish.pending and outlook.wish.mesh is not None:
        return f"asked for: {outlook.wish}"
    kept = [place for place in plan.teams if place not in seen.leaving]
    warm = [seat for seat in seen.own if seat.worker not in plan.living and outlook.is_born(seat.worker)]
    more = teams_of(warm, tp=plan.mesh.tp)
    if outlook.wish.pending:
        there = (*seen.own, *seen.free)
        cold = [seat for seat in there if seat not in warm and seat.worker not in plan.living]
        more += teams_of(cold, tp=plan.mesh.tp)
    elif not (plan.lost or seen.leaving):
        return "the mesh is whole"
    else:
        more = more[: len({*plan.lost, *seen.leaving})]  # the other standbys stay that
    if outlook.wish.devices is not None:
        most = outlook.wish.devices // plan.mesh.tp
        kept, more = kept[:most], more[: max(0, most - len(kept))]
    return uneven_plan(plan, kept=kept, more=more) or "there are fewer teams than stages, or stages cannot be cut so"


def _resharded(training: Training, seen: Around, moves: Moves) -> Plan | str:
    plan, outlook = training.plan, training.story.outlook
    try:
        found = fitting(moves.plan_for((*seen.own, *seen.free), outlook.wish), most_samples=outlook.most_samples).plan
    except PlanError as error:
        return error.message
    whole = not (plan.lost or seen.leaving or outlook.wish.pending)
    if found.mesh == plan.mesh and whole:
        return "it is what runs"
    return staying(found, old=plan, node_of=seen.nodes)


def _priced(
    brain: Brain, training: Training, moves: Moves, seen: Around, *, rung: Rung, found: Plan | str, now: float
) -> Offer | Barred:
    outlook = training.story.outlook
    if isinstance(found, str):
        return Barred(rung=rung, reason=found)
    if len(found.living) < brain.rules.min_devices:
        few = f"{len(found.living)} workers, elastic.min_devices is {brain.rules.min_devices}"
        return Barred(rung=rung, reason=few)
    step_s = outlook.prices.step_s(found)
    if found == training.plan:
        return Offer(rung=rung, step_s=step_s)
    try:
        num_bytes = moves.busiest_bytes(transition_of(training, found, seen.nodes), found)
    except StateLost as error:
        return Barred(rung=rung, reason=error.message)
    running_s = outlook.prices.step_s(training.plan)
    at_boundary_s = max(1, training.granted - training.story.committed) * running_s
    ready_s = max(_warm_s(training, found, now), _steady_t(brain, training, found, seen) - now, at_boundary_s)
    return Offer(
        rung=rung, step_s=step_s, pause_s=outlook.prices.pause_s(num_bytes), ready_s=ready_s, meanwhile_step_s=running_s
    )


def _in_time(offers: list[Offer], seen: Around, now: float) -> list[Offer]:
    """Those that are done before the deadline; where none is, the one that is done first."""
    if seen.by_t is None or not offers:
        return offers
    left_s = seen.by_t - now - IN_TIME_S
    timely = [offer for offer in offers if offer.ready_s + offer.pause_s <= left_s]
    return timely or [min(offers, key=lambda offer: offer.ready_s + offer.pause_s)]


def _warm_s(training: Training, new: Plan, now: float) -> float:
    """Until everyone of `new` is up."""
    outlook = training.story.outlook
    started, here = dict(outlook.unborn), {seat.worker for seat in training.seats}
    waits = [0.0]
    for worker in new.living:
        if worker in started:
            waits.append(outlook.prices.start_s - (now - started[worker]))
        elif worker not in here:
            waits.append(outlook.prices.start_s)
    return max(waits)


def _steady_t(brain: Brain, training: Training, new: Plan, seen: Around) -> float:
    """From when on all nodes that the plan grows onto have been there long enough."""
    outlook, nodes = training.story.outlook, seen.nodes
    fresh = [worker for worker in new.living if worker not in training.plan.living]
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


def teams_of(seats: Iterable[Seat], *, tp: int) -> list[Team]:
    """Whole teams, each on one node."""
    by_node: dict[str, list[WorkerId]] = {}
    for seat in seats:
        by_node.setdefault(seat.node, []).append(seat.worker)
    return [
        tuple(workers[first : first + tp])
        for workers in by_node.values()
        for first in range(0, len(workers) - tp + 1, tp)
    ]


def _living_at(plan: Plan, seen: Around, stage: int) -> int:
    return sum(place[1] == stage and place not in seen.leaving for place in plan.teams)
