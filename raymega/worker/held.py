"""The state that a worker holds: one, and two while a transition is not certified.

    counts    next
    old       -          training by the old plan
    old       new        moved: nobody knows yet whether all have it right
    new       -          the first grant of the generation: it is certified, the old one is dropped
    old       -          or the old plan is assigned again: rolled back, bit for bit

Which of the two an assignment means follows from its plan, since they hold different boxes: where a worker's boxes do
not change, both are the same object.
"""

import torch

from raymega.errors import RaymegaBug
from raymega.plan.plan import Plan, WorkerId
from raymega.worker.chunk import Seat
from raymega.worker.interface import Assignment, WorkerSettings
from raymega.worker.state import TrainState
from raymega.worker.world import World


class Held:
    """Written by the training thread; `state` may be read by any."""

    def __init__(self) -> None:
        self._counts: TrainState | None = None
        self._next: TrainState | None = None

    @property
    def state(self) -> TrainState | None:
        """The newest that is whole. Both are of the same step and decision."""
        return self._next if self._next is not None else self._counts

    def fitting(self, plan: Plan, *, me: WorkerId) -> TrainState:
        """The one that is held by `plan`. Raises: RaymegaBug if there is none."""
        seat = Seat.of(plan, me)
        for state in (self._next, self._counts):
            if state is not None and state.seat == seat:
                return state
        raise RaymegaBug(f"{me} holds no state of the plan {plan.mesh} that it is to keep or to send from.", worker=me)

    def at(self, plan: Plan, *, me: WorkerId, version: tuple[int, int]) -> TrainState | None:
        """The one that is held by `plan`, if it is that of `version`: (step, generation that decided it)."""
        seat = Seat.of(plan, me)
        held = (state for state in (self._next, self._counts) if state is not None and state.seat == seat)
        return next((state for state in held if (state.committed, state.decided_in) == version), None)

    def take(self, state: TrainState | None) -> None:
        """Hold this one and no other."""
        self._counts, self._next = state, None

    def offer(self, state: TrainState) -> None:
        """Hold this one too; it counts once it is adopted."""
        self._next = state

    def adopt(self) -> None:
        """What was offered counts."""
        if self._next is not None:
            self._counts, self._next = self._next, None


def take_state(assignment: Assignment, *, held: Held, settings: WorkerSettings, world: World) -> TrainState:
    """The state with which an assignment begins that moves none: the one that fits, from storage, or first values."""
    config, device = settings.config, torch.device(settings.device)
    if assignment.keep_state:
        state = held.fitting(assignment.plan, me=settings.worker)
        state.rejoin(world)
    elif assignment.checkpoint is not None:
        state = TrainState.blank(config, world=world, device=device)
        state.load(assignment.checkpoint, config=config)
    else:
        state = TrainState.build(config, world=world, device=device)
        if config.run.init_from is not None:
            state.load_params(config.run.init_from, config=config)
    if not assignment.keep_state:
        state.begin_at(committed=assignment.step, skipped=assignment.skipped, scale=assignment.scale)
    held.take(state)
    return state
