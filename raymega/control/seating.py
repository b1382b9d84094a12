"""Which devices have a seat in the next generation: survivors keep theirs, free devices are taken for the plan only."""

from raymega.config.fault import are, counted, does
from raymega.control.decision import Brain, Planned
from raymega.control.fitting import fitting
from raymega.control.states import Seat, Story, WaitingForNodes
from raymega.errors import PlanError, RaymegaBug
from raymega.plan.plan import Plan, WorkerId


def seated(brain: Brain, state: WaitingForNodes) -> tuple[tuple[Seat, ...], Planned]:
    """The seats of the next generation and its plan; nodes to be left or avoided only where nothing else works.

    Survivors without a place in the plan keep their seat, as spares; fresh seats are taken only for the plan.
    """
    story, wish, leaving = state.story, state.story.outlook.wish, state.story.outlook.leaving
    for avoided in dict.fromkeys((story.avoided | leaving, leaving, frozenset[str]())):
        free = free_seats(state.seats, story=story, avoided=avoided)
        offered = (*(seat for seat in state.seats if seat.node not in avoided & leaving), *free)
        try:
            if len(offered) < brain.rules.min_devices:
                few = f"{counted(len(offered), noun='device')} {are(len(offered))} left"
                least = brain.rules.min_devices
                raise PlanError(f"{few}, elastic.min_devices is {least}. Bring back devices, or lower it")
            found = brain.plan_for(offered) if brain.moves is None else brain.moves.plan_for(offered, wish)
            planned = fitting(found, most_samples=story.outlook.most_samples)
        except PlanError:
            if not avoided:
                raise
            continue
        return (*state.seats, *(seat for seat in free if seat.worker in planned.plan.workers)), planned
    raise RaymegaBug("the last try has no nodes to avoid")


def free_seats(seats: tuple[Seat, ...], *, story: Story, avoided: frozenset[str]) -> tuple[Seat, ...]:
    """A seat, with the next workers' names, for every device that nobody has."""
    taken = {(seat.node, seat.device) for seat in seats}
    free = [
        (node, device)
        for node in story.nodes
        if node.node not in avoided
        for device in range(node.devices)
        if (node.node, device) not in taken
    ]
    first = story.next_worker
    return tuple(
        Seat(worker=f"w{first + index}", node=node.node, device=device, usable_bytes=node.usable_bytes)
        for index, (node, device) in enumerate(free)
    )


def number_of(worker: WorkerId) -> int:
    """Workers are numbered in the order in which they are started."""
    return int(worker.removeprefix("w"))


def staff_of(plan: Plan, *, before: tuple[Seat, ...]) -> str:
    """Who stays and who is new, for people."""
    kept = len({seat.worker for seat in before} & set(plan.workers))
    fresh = len(plan.workers) - kept
    if not kept:
        return f"{counted(fresh, noun='worker')} {are(fresh)} started"
    stays = f"{counted(kept, noun='worker')} {does(kept, verb='stay')}"
    return f"{stays}, {fresh} {are(fresh)} started" if fresh else stays
