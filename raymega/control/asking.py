"""What people and the cluster ask of a live run: another size, or to be off a node in time. Each is answered once.

    resize   to a mesh, or so many devices     a wish: it holds until the next one, through losses too
    drain    a node will be gone at by_t       not used from now on; the plan is changed before, if that can be

What cannot be is refused with the reason, and the run goes on as it is. A notice of the cluster is not refused: the
node goes in any case, and if nothing can be done in time there is a checkpoint before (`control.safekeeping`), and its
loss is repaired like any other.
"""

from dataclasses import replace

from raymega.config.fault import are
from raymega.control.commands import Answer, Command
from raymega.control.decision import Brain, Decision, Moves
from raymega.control.events import (
    CheckpointAsked,
    DisturbAsked,
    DrainAsked,
    PauseAsked,
    ResizeAsked,
    ResumeAsked,
    RewindAsked,
    SetAsked,
)
from raymega.control.outlook import Drain, Wish
from raymega.control.preparing import proceed, with_step_price
from raymega.control.proposing import Proposal, propose
from raymega.control.safekeeping import STAYS
from raymega.control.seating import free_seats
from raymega.control.states import (
    Moving,
    Restoring,
    Saving,
    Settling,
    Starting,
    Stopping,
    Story,
    Training,
    WaitingForNodes,
    seats_of,
    with_story,
)
from raymega.control.ways import around, ways_of
from raymega.errors import PlanError
from raymega.plan.plan import Plan

Asked = ResizeAsked | DrainAsked | PauseAsked | ResumeAsked | SetAsked | CheckpointAsked | RewindAsked | DisturbAsked
Live = WaitingForNodes | Starting | Restoring | Training | Moving | Settling


def refused_at_the_end(brain: Brain, state: Stopping | Saving, event: Asked, now: float) -> Decision:
    """A run that ends changes its plan no more."""
    return refused(state, event, "the run is about to end")


def resize_asked(brain: Brain, state: Live, event: ResizeAsked, now: float) -> Decision:
    """Take the wish up, if there is a plan for it on the devices that are there."""
    if brain.moves is None:
        return refused(state, event, STAYS)
    wish = Wish(devices=event.devices, mesh=event.mesh, pending=not isinstance(state, WaitingForNodes))
    planned = _planned(brain, brain.moves, state, wish, most=event.request is None)
    if isinstance(planned, str):
        return refused(state, event, planned)
    if isinstance(state, Training) and planned is not None and _is_so(state, planned):
        wish = replace(wish, pending=False)
    after = with_story(state, replace(state.story, outlook=replace(state.story.outlook, wish=wish, rollbacks=0)))
    told = f"{event.cause}: {wish}" if event.cause else str(wish)
    if not isinstance(after, Training):
        return accepted(Decision(state=after), event, f"{told}: taken up as soon as the run trains")
    decision = proceed(brain, after, now)
    if decision.reason:
        return accepted(decision, event, f"{event.cause}; {decision.reason}" if event.cause else decision.reason)
    if not wish.pending:
        return accepted(decision, event, f"{told}: {_as_it_is(after, wish)}")
    return _without_news(brain, state, decision, event, told=told, now=now)


def _without_news(
    brain: Brain, state: Live, decision: Decision, event: ResizeAsked, *, told: str, now: float
) -> Decision:
    """The answer to a wish that has set nothing going: it is underway already, has to wait, or cannot be."""
    after = decision.state
    assert isinstance(after, Training), "nothing was set going"
    assert brain.moves is not None, "else it was refused"
    hold_s = after.story.outlook.hold_until - now
    if after.change is not None:
        return accepted(decision, event, f"{told}: underway already, {after.change.plan.mesh} is being prepared")
    if hold_s > 0:
        return accepted(decision, event, f"{told}: taken up in {hold_s:.0f} s, since a change was given up just now")
    found = propose(brain, with_step_price(after), ways_of(brain, after, brain.moves), now)
    if event.request is not None:
        return refused(state, event, f"{told}: {found.reason}")
    return accepted(decision, event, f"{told}: {found.reason}")


def drain_asked(brain: Brain, state: Live, event: DrainAsked, now: float) -> Decision:
    """Use the node no more, and be off it in time if that can be."""
    names = sorted(node.node for node in state.story.nodes)
    if event.node not in names:
        return refused(state, event, f"no node {event.node} has devices for this run; there are {', '.join(names)}")
    if brain.moves is None and event.request is not None:
        return refused(state, event, STAYS)
    after = with_story(state, _with_drain(state.story, event))
    if not isinstance(after, Training):
        return accepted(
            Decision(state=after), event, f"{event.node} is not used any more; changed as soon as the run trains"
        )
    if brain.moves is None:
        decision = proceed(brain, after, now)
        return accepted(decision, event, decision.reason or f"{event.node} is not used any more")
    ways = ways_of(brain, after, brain.moves)
    if not ways.seen.leaving:
        decision = proceed(brain, after, now)
        return accepted(decision, event, f"no worker of the plan is on {event.node}; it is not used any more")
    found = propose(brain, with_step_price(after), ways, now)
    if found.change is None and event.request is not None:
        return refused(state, event, f"nothing can take over from {event.node}: {found.brief or found.reason}")
    decision = proceed(brain, after, now)
    if decision.state.story.outlook.saved_for != state.story.outlook.saved_for:
        return accepted(decision, event, decision.reason)
    return accepted(decision, event, _in_time(found, event, now) or decision.reason or found.reason)


def _in_time(found: Proposal, event: DrainAsked, now: float) -> str:
    """A deadline that cannot be kept, in words; empty if it can."""
    if why := found.why_late(event.by_t, now):
        return f"nothing can take over from {event.node} in time: its loss is dealt with when it comes ({why})"
    return ""


def _is_so(training: Training, plan: Plan) -> bool:
    """Is what runs what is wished for?"""
    return plan.mesh == training.plan.mesh and not training.plan.lost and not around(training).leaving


def _as_it_is(training: Training, wish: Wish) -> str:
    """How what runs fulfils `wish`: as it says, or with fewer devices than it allows."""
    story, mesh = training.story, training.plan.mesh
    used = sum(seat.node in story.avoided for seat in training.seats)
    there = used + sum(node.devices for node in story.nodes if node.node not in story.avoided)
    if wish.devices is None or mesh.size == wish.devices:
        return "the run is so already"
    few = f"{there} {are(there)} there for it now{_left_out(story)}"
    why = few if there < wish.devices else "no plan for more is faster here"
    return f"the run stays on {mesh.size} as {mesh}, {why}"


def _left_out(story: Story) -> str:
    """The nodes that are there and get no more workers, with the reason; mostly none."""
    nodes = ", ".join(sorted(story.avoided))
    return f"; none is started on {nodes}, where a worker did not come to life" if nodes else ""


def _planned(brain: Brain, moves: Moves, state: Live, wish: Wish, *, most: bool) -> Plan | str | None:
    """The plan for `wish`, or why there is none; None: nothing is there yet to plan with.

    Args:
        most: the wish is a bound: that fewer devices are there is no fault.
    """
    story = state.story
    if most and not story.nodes:
        return None
    kept = tuple(seat for seat in seats_of(state) if seat.node not in story.outlook.leaving)
    offered = (*kept, *free_seats(seats_of(state), story=story, avoided=story.avoided | story.outlook.leaving))
    if not most and wish.devices is not None and wish.devices > len(offered):
        there = f"{len(offered)} that {are(len(offered))} there{_left_out(story)}"
        return f"{wish} are more than the {there}. Ask for {len(offered)}, or add some"
    try:
        planned = moves.plan_for(offered, wish)
    except PlanError as error:
        return error.message
    if wish.mesh is not None and planned.plan.mesh != wish.mesh:
        return f"{wish} does not fit: {planned.reason}"
    if planned.plan.mesh.size < brain.rules.min_devices:
        return f"{planned.plan.mesh} is below elastic.min_devices {brain.rules.min_devices}"
    return planned.plan


def _with_drain(story: Story, event: DrainAsked) -> Story:
    drain = Drain(node=event.node, by_t=event.by_t, cause=event.cause)
    return replace(story, outlook=story.outlook.with_drain(drain))


def refused(state: Live | Stopping | Saving, event: Asked, why: str, *, soon: bool = False) -> Decision:
    """The run goes on as it is; `soon`: it may be asked again."""
    commands = _answer(event, accepted=False, reason=why, soon=soon)
    return Decision(state=state, commands=commands, reason=f"refused: {why}")


def accepted(decision: Decision, event: Asked, reason: str) -> Decision:
    """What `decision` does, with its reason as the answer."""
    commands = (*_answer(event, accepted=True, reason=reason), *decision.commands)
    return replace(decision, commands=commands, reason=reason)


def _answer(event: Asked, *, accepted: bool, reason: str, soon: bool = False) -> tuple[Command, ...]:
    if event.request is None:
        return ()
    return (Answer(request=event.request, accepted=accepted, reason=reason, soon=soon),)
