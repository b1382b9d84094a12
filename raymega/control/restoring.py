"""A box has no living holder: the state comes back from copies in the memory of those who live, and they go on from it.

    found    the newest version that every box is kept of, by its holder or by a peer    (`control.copies_found`)
    plan     over the survivors, standbys and free devices; fresh workers start
    move     a transition like any other, with copies among its sources; certified, or the rung below is taken

Steps that were committed after that version are done again: at most `elastic.copies_every`, none if the copy is of the
newest. Copies that were refused once are not tried again; those who died in the attempt are no reason against another.
"""

from collections.abc import Mapping
from dataclasses import replace

from raymega.config.fault import are, counted
from raymega.control.changing import Change, MoveUnderway
from raymega.control.commands import AssignPlan, Command, FeedFrom, StartWorkers
from raymega.control.copies_found import CopiesFound, copies_found
from raymega.control.decision import Brain, Decision
from raymega.control.ladder import Rung
from raymega.control.seating import number_of, seated
from raymega.control.states import Moving, Settling, State, Story, WaitingForNodes, seats_of
from raymega.errors import PlanError
from raymega.layout.copies import Home
from raymega.plan.plan import Plan
from raymega.plan.transition import Transition


def find(brain: Brain, state: Settling) -> CopiesFound | None:
    """What all can go back to; None if there is nothing newer than the checkpoint, or it was refused before."""
    story = state.story
    refused = is_restoring(state) and not state.lost
    if refused or not state.held or brain.copies_for is None:
        return None
    found = copies_found(state.plan, left=state.left, newest=min(story.committed, brain.rules.steps - 1))
    return found if found is not None and found.version.step >= story.safe_step else None


def is_restoring(state: Settling) -> bool:
    """Is it the restoring of copies that broke?"""
    return state.move is not None and state.move.change.rung is Rung.PEER_COPY


def reason_of(found: CopiesFound, story: Story) -> str:
    """What going back to `found` is like, as half a sentence."""
    again = story.committed - found.version.step
    steps = f"{counted(again, noun='step')} {are(again)} done again" if again else "no step is done again"
    owners = ", ".join(sorted(found.copies)) or "nobody"
    return f"the state of step {found.version.step} is whole with the copies of {owners}: {steps}"


def restore(
    brain: Brain, waiting: WaitingForNodes, settled: Settling, found: CopiesFound | None, now: float, *, cause: str
) -> Decision | None:
    """Give everyone its part in bringing the state of `found` back; None where that cannot be.

    Args:
        waiting: the survivors, at the step of `found`.
        settled: what broke; the state is held by its plan.
    """
    if found is None:
        return None
    try:
        seats, planned = seated(brain, waiting)
    except PlanError:
        return None
    plan, alive = planned.plan, {seat.worker for seat in waiting.seats}
    fresh = tuple(seat for seat in seats if seat.worker not in alive)
    story = replace(
        waiting.story,
        generation=waiting.story.next_generation,
        next_worker=max((number_of(seat.worker) + 1 for seat in fresh), default=waiting.story.next_worker),
        outlook=waiting.story.outlook.with_started([seat.worker for seat in fresh], now),
    )
    nodes = {seat.worker: seat.node for seat in seats}
    version = found.version
    transition = Transition(
        old=settled.plan,
        senders=found.senders,
        node_of={worker: nodes[worker] for worker in (*found.senders, *plan.living)},
        copies=found.copies,
        version=(version.step, version.generation),
    )
    change = _change(brain, story, transition, plan, starts=bool(fresh), cause=cause, now=now)
    move = MoveUnderway(change=change, transition=transition, step=version.step, since=now)
    assign = AssignPlan(
        generation=story.generation, plan=plan, step=version.step, checkpoint=None, move=transition,
        settle=story.decided if story.decided is not None and story.decided.version == version else None,
    )  # fmt: skip
    starts: tuple[Command, ...] = (StartWorkers(seats=fresh),) if fresh else ()
    return Decision(
        state=Moving(story=story, seats=seats, plan=plan, move=move, stop=settled.stop),
        commands=(*starts, assign, FeedFrom(step=version.step)),
        reason=f"{cause}; {planned.reason}",
    )


def _change(
    brain: Brain, story: Story, transition: Transition, plan: Plan, *, starts: bool, cause: str, now: float
) -> Change:
    prices = story.outlook.prices
    num_bytes = brain.moves.busiest_bytes(transition, plan) if brain.moves is not None else 0
    return Change(
        rung=Rung.PEER_COPY,
        cause=cause,
        plan=plan,
        predicted_s=prices.pause_s(num_bytes) + (prices.start_s if starts else 0.0),
        predicted_step_s=prices.step_s(plan) if prices.paces else 0.0,
        since=now,
    )


def with_copies(brain: Brain, decision: Decision) -> Decision:
    """Say with every plan who keeps whose state from then on."""
    if brain.copies_for is None:
        return decision
    commands: list[Command] = []
    for command in decision.commands:
        if isinstance(command, AssignPlan):
            homes = _homes(decision.state)
            command = replace(command, copies=brain.copies_for(command.plan, homes).routes)
        commands.append(command)
    return replace(decision, commands=tuple(commands))


def _homes(state: State) -> Mapping[str, Home]:
    labels = {node.node: dict(node.labels) for node in state.story.nodes}
    return {seat.worker: Home(node=seat.node, labels=labels.get(seat.node, {})) for seat in seats_of(state)}
