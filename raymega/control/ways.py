"""What could follow the plan in force? Every rung of the ladder as a plan, or why it is not open.

    plan in force  w0 w1 | w2 --   seats  w0 w1 w2 w4(warm)    n1 has a free device, n2 is to go
    keep rerouting        the same, or without the teams on nodes that are to go
    take in a spare       their places, and those of lost teams, to others: warm ones first, else fresh ones
    re-plan unevenly      all warm teams, layers by the number of teams that a stage has
    reshard fully         what the planner lays over all that is there

All of it is asked at a boundary of a run that trains, so every box has its holder: copies and storage are not needed.
None of it hangs on the time, so it is found once for each state of the cluster; `control.proposing` prices it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from raymega.config.fault import counted
from raymega.control.changing import Around, Way, Ways
from raymega.control.decision import Brain, Moves
from raymega.control.fitting import fitting
from raymega.control.ladder import Rung
from raymega.control.seating import free_seats
from raymega.control.states import Seat, Training
from raymega.errors import PlanError, StateLost
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.staying import staying
from raymega.plan.transition import Transition
from raymega.plan.uneven import Team, uneven_plan, with_teams, without_teams


def ways_of(brain: Brain, training: Training, moves: Moves) -> Ways:
    """Every rung, with what would travel."""
    seen = around(training)
    nodes = {**seen.nodes, **{seat.worker: seat.node for seat in training.seats}}
    found = _plans(training, seen, moves)
    rows = (_way(brain, training, moves, seen, nodes, rung=rung, found=plan) for rung, plan in found)
    return Ways(seen=seen, rows=tuple(rows))


def around(training: Training) -> Around:
    """Look for devices; nodes on which a worker did not come to life are left out."""
    story, outlook = training.story, training.story.outlook
    going = outlook.leaving
    leaving, by_t = _leaving(training, going) if going else ((), None)
    free = free_seats(training.seats, story=story, avoided=story.avoided | going)
    return Around(own=_in_order(training, going), free=free, leaving=leaving, by_t=by_t)


def _in_order(training: Training, going: frozenset[str]) -> tuple[Seat, ...]:
    """Seats on nodes that stay: of the plan's workers, then of warm ones, then of those that are starting."""
    living, unborn = set(training.plan.living), dict(training.story.outlook.unborn)
    stay = [seat for seat in training.seats if seat.node not in going] if going else training.seats
    own = [seat for seat in stay if seat.worker in living]
    if len(own) == len(stay) and living.isdisjoint(unborn):
        return tuple(own)
    return tuple(sorted(stay, key=lambda seat: (seat.worker not in living, seat.worker in unborn)))


def _leaving(training: Training, going: frozenset[str]) -> tuple[tuple[Place, ...], float | None]:
    """The teams that have a worker on a node that is to go, and when the first of these nodes is gone."""
    plan, nodes = training.plan, {seat.worker: seat.node for seat in training.seats}
    teams = {place: {nodes[plan.workers[rank]] for rank in plan.team(*place)} & going for place in plan.teams}
    leaving = tuple(place for place, at in teams.items() if at)
    at = frozenset[str]().union(*teams.values())
    return leaving, min((drain.by_t for drain in training.story.outlook.draining if drain.node in at), default=None)


def transition_of(training: Training, new: Plan, nodes: Mapping[WorkerId, str]) -> Transition:
    """From the plan in force to `new`; `nodes`: of all workers of both."""
    node_of = {worker: nodes[worker] for worker in (*training.plan.living, *new.living)}
    return Transition(old=training.plan, senders=training.plan.living, node_of=node_of)


def _way(
    brain: Brain, training: Training, moves: Moves, seen: Around, nodes: Mapping[WorkerId, str], *, rung: Rung,
    found: Plan | str,
) -> Way:  # fmt: skip
    if isinstance(found, str):
        return Way(rung=rung, barred=found)
    if len(found.living) < brain.rules.min_devices:
        few = f"{counted(len(found.living), noun='worker')}, elastic.min_devices is {brain.rules.min_devices}"
        return Way(rung=rung, barred=few)
    if found == training.plan:
        return Way(rung=rung, plan=training.plan)
    if lacks := moves.lacks(found, (*seen.own, *seen.free)):
        return Way(rung=rung, barred=f"{found.mesh} does not fit: {lacks}")
    try:
        num_bytes = moves.busiest_bytes(transition_of(training, found, nodes), found)
    except StateLost as error:
        return Way(rung=rung, barred=error.message)
    return Way(rung=rung, plan=found, num_bytes=num_bytes)


def _plans(training: Training, seen: Around, moves: Moves) -> list[tuple[Rung, Plan | str]]:
    return [
        (Rung.KEEP_REROUTING, _kept(training, seen)),
        (Rung.TAKE_SPARE, _spared(training, seen)),
        (Rung.REPLAN_UNEVEN, _uneven(training, seen, moves)),
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
    living = Counter(stage for replica, stage in plan.teams if (replica, stage) not in seen.leaving)
    places = sorted((*plan.lost, *seen.leaving), key=lambda place: (living[place[1]], place))
    if outlook.wish.devices is not None:
        staying_on = len(plan.teams) - len(seen.leaving)
        places = places[: max(0, outlook.wish.devices // plan.mesh.tp - staying_on)]
    if not places:
        return "no place is to be filled"
    running, unborn = set(plan.living), dict(outlook.unborn)
    own = [seat for seat in seen.own if seat.worker not in running]
    warm = [seat for seat in own if seat.worker not in unborn]
    teams = teams_of(warm, tp=plan.mesh.tp) or teams_of((*own, *seen.free), tp=plan.mesh.tp)
    if not teams:
        return "no worker stands by, and no device is free"
    filled = dict(zip(places, teams, strict=False))
    rest = [place for place in seen.leaving if place not in filled]
    return without_teams(with_teams(plan, filled), rest) or "not every stage would have a team"


def _uneven(training: Training, seen: Around, moves: Moves) -> Plan | str:
    plan, outlook = training.plan, training.story.outlook
    if outlook.wish.pending and outlook.wish.mesh is not None:
        return f"asked for: {outlook.wish}"
    kept = [place for place in plan.teams if place not in seen.leaving]
    running, unborn = set(plan.living), dict(outlook.unborn)
    warm = [seat for seat in seen.own if seat.worker not in running and seat.worker not in unborn]
    more = teams_of(warm, tp=plan.mesh.tp)
    if outlook.wish.pending:
        there = (*seen.own, *seen.free)
        cold = [seat for seat in there if seat not in warm and seat.worker not in running]
        more += teams_of(cold, tp=plan.mesh.tp)
    elif not (plan.lost or seen.leaving):
        return "the mesh is whole"
    else:
        more = more[: len({*plan.lost, *seen.leaving})]  # the other standbys stay that
    if outlook.wish.devices is not None:
        most = outlook.wish.devices // plan.mesh.tp
        kept, more = kept[:most], more[: max(0, most - len(kept))]
    found = uneven_plan(plan, kept=kept, more=more)
    if found is None:
        return "there are fewer teams than stages, or stages cannot be cut so"
    if found.in_flight and moves.lacks(found, (*seen.own, *seen.free)):
        return replace(found, in_flight=())  # slower, with no more activations than the schedule has
    return found


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
