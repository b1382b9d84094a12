"""Which devices have a seat in the next generation: survivors keep theirs, free devices are taken for the plan only."""

from raymega.control.decision import Brain, Planned
from raymega.control.states import Seat, WaitingForNodes
from raymega.errors import PlanError, RaymegaBug
from raymega.plan.plan import WorkerId


def seated(brain: Brain, state: WaitingForNodes) -> tuple[tuple[Seat, ...], Planned]:
    """The seats of the next generation and its plan; nodes to be avoided only where it does not work without them.

    Survivors without a place in the plan keep their seat, as spares; fresh seats are taken only for the plan.
    """
    story = state.story
    for avoided in dict.fromkeys((story.avoided, frozenset[str]())):
        free = _free_seats(state, avoided)
        offered = (*state.seats, *free)
        try:
            if len(offered) < brain.rules.min_devices:
                few = f"{len(offered)} devices are left, elastic.min_devices is {brain.rules.min_devices}"
                raise PlanError(f"{few}. Bring back devices, or lower it")
            planned = brain.plan_for(offered)
        except PlanError:
            if not avoided:
                raise
            continue
        return (*state.seats, *(seat for seat in free if seat.worker in planned.plan.workers)), planned
    raise RaymegaBug("the last try has no nodes to avoid")


def _free_seats(state: WaitingForNodes, avoided: frozenset[str]) -> tuple[Seat, ...]:
    taken = {(seat.node, seat.device) for seat in state.seats}
    free = [
        (node.node, device)
        for node in state.story.nodes
        if node.node not in avoided
        for device in range(node.devices)
        if (node.node, device) not in taken
    ]
    first = state.story.next_worker
    return tuple(
        Seat(worker=f"w{first + index}", node=node, device=device) for index, (node, device) in enumerate(free)
    )


def number_of(worker: WorkerId) -> int:
    """Workers are numbered in the order in which they are started."""
    return int(worker.removeprefix("w"))
