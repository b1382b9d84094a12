"""The state goes over to another plan: who has said what it holds, is it certified, and what if something breaks.

    Moving   every member says what it held and holds (StateMoved)
             all have, and it is whole      the new plan counts: leave is given, which ends the old state; leavers go
             all have, and it is not        rolled back: everyone is told to leave, and goes on by the old plan
             someone is lost, leaves, errs  rolled back likewise, without the lost; what they held is with their peers
             a stop is asked for            one step of whichever plan counts afterwards, saved, is the last
             another node is to go          the next change, prepared as soon as this one is over

Until leave is given in the new generation every sender keeps the state of the old plan: there is no moment in which
neither of the two is whole.
"""

from collections.abc import Sequence
from dataclasses import replace

from raymega.control.broken import Sign
from raymega.control.changing import MoveUnderway
from raymega.control.commands import Command, StopWorkers
from raymega.control.decision import Brain, Decision
from raymega.control.ending import cut_short, give_up, is_overdue, stop_after
from raymega.control.events import StateMoved, Tick, WorkerFailed
from raymega.control.preparing import proceed
from raymega.control.recovery import break_generation
from raymega.control.states import Moving, Story, Training
from raymega.control.written import written
from raymega.layout.certificate import Certified
from raymega.plan.plan import WorkerId


def state_moved(brain: Brain, state: Moving, event: StateMoved, now: float) -> Decision:
    """One more member has its state; with the last one the certificate is asked for."""
    move = _with_parts(state.move, (event, *event.also))
    state = replace(state, move=move)
    if brain.moves is None or len(move.parts) < len(move.members):
        return Decision(state=state)
    told = {part.worker: part for part in move.parts}
    if set(told) < set(move.members):
        return Decision(state=state)
    found = brain.moves.certify(move.transition, state.plan, step=move.step, parts=told)
    if isinstance(found, Certified):
        return _counts(brain, state, found, now)
    faults = "; ".join(found.faults)
    return break_generation(brain, state, Sign(reason=f"the moved state is refused: {faults}"), now)


def time_passes(brain: Brain, state: Moving, event: Tick, now: float) -> Decision:
    """A transition that takes too long is rolled back."""
    if is_overdue(state.stop, now):
        return cut_short(state, "the grace is used up")
    waited_s = now - state.move.since
    if waited_s <= brain.rules.start_timeout_s:
        return Decision(state=state)
    late = ", ".join(sorted(set(state.move.members) - {part.worker for part in state.move.parts}))
    return break_generation(brain, state, Sign(reason=f"no word of {late} for {waited_s:.0f} s"), now)


def worker_failed(brain: Brain, state: Moving, event: WorkerFailed, now: float) -> Decision:
    """What one of them cannot do for the new plan need not end the run: it goes on by the old one, without it."""
    if event.worker not in state.move.members:
        reason = f"{event.worker} failed: {event.error}"
        return give_up(state, exit_code=event.exit_code, reason=reason, details=event.traceback)
    sign = Sign(reason=f"{event.worker} failed: {event.error}", lost=((event.worker, event.error),))
    return break_generation(brain, state, sign, now)


def _with_parts(move: MoveUnderway, events: Sequence[StateMoved]) -> MoveUnderway:
    fresh = {event.worker: event.part for event in events}
    received = [event.bytes_received for event in events]
    return replace(
        move,
        parts=(*(part for part in move.parts if part.worker not in fresh), *fresh.values()),
        bytes_received=move.bytes_received + sum(received),
        busiest_bytes=max(move.busiest_bytes, *received),
        move_s=max(move.move_s, *(event.seconds.get("move", 0.0) for event in events)),
    )


def _counts(brain: Brain, state: Moving, found: Certified, now: float) -> Decision:
    """The new plan is in force: give leave, and let those go who have no part in it."""
    move, plan = state.move, state.plan
    surplus = _surplus(brain, state)
    seats = tuple(seat for seat in state.seats if seat.worker not in surplus)
    training = Training(
        story=_story(state.story, move, plan.living, now), seats=seats, plan=plan, granted=state.story.committed
    )
    record = written(move, certified=True, bytes_moved=found.bytes_moved, reason=found.reason, now=now)
    if state.stop is not None:
        decision = stop_after(brain, training, state.stop)
    else:
        decision = proceed(brain, training, now, reason=found.reason)
    ends: tuple[Command, ...] = (StopWorkers(workers=surplus),) if surplus else ()
    return replace(decision, commands=(record, *decision.commands, *ends))


def _story(story: Story, move: MoveUnderway, living: tuple[WorkerId, ...], now: float) -> Story:
    outlook = story.outlook.with_born(living)
    prices = outlook.prices.moved(move.busiest_bytes, move.move_s)
    prices = prices.regrouped(max(0.0, now - move.since - move.move_s))
    wish = replace(outlook.wish, pending=False)
    return replace(story, outlook=replace(outlook, prices=prices, wish=wish, rollbacks=0, hold_until=0.0))


def _surplus(brain: Brain, state: Moving) -> tuple[WorkerId, ...]:
    """Leavers that are not wanted as standbys; nobody stands by on a node that is to go."""
    going = state.story.outlook.leaving
    nodes = {seat.worker: seat.node for seat in state.seats}
    leavers = state.move.transition.leavers(state.plan)
    busy = {*state.plan.living, *leavers}
    others = [seat for seat in state.seats if seat.worker not in busy]
    room = max(0, brain.rules.standbys - sum(seat.node not in going for seat in others))
    may_stay = [worker for worker in leavers if nodes[worker] not in going][:room]
    on_the_way_out = [seat.worker for seat in others if seat.node in going]
    return (*(worker for worker in leavers if worker not in may_stay), *on_the_way_out)
