"""What simulated workers say: that one of them is lost, what each has when it leaves, that their state has moved.

Many say the same thing at the same moment of virtual time, so the first one's event carries the others (`also`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raymega.control.commands import AssignPlan
from raymega.control.events import GenerationLeft, StateMoved, WorkerLost
from raymega.control.states import Seat
from raymega.layout.certificate import StatePart
from raymega.pipeline.actions import Action
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.repairs import stages_of
from raymega.plan.transition import Transition

Version = tuple[int, int]  # (steps, generation that decided them)
NO_STATE: Version = (-1, 0)


def lost(seats: Sequence[Seat], *, silent_s: float) -> WorkerLost:
    """Their nodes are gone."""
    first, *others = (
        WorkerLost(worker=seat.worker, node=seat.node, cause="its node is gone", silent_s=silent_s, node_gone=True)
        for seat in seats
    )
    return replace(first, also=tuple(others))


def left(
    versions: Mapping[WorkerId, Version], *, generation: int, assigned: AssignPlan,
    ledgers: Mapping[Place, frozenset[Action]],
) -> GenerationLeft | None:  # fmt: skip
    """What survivors say; in a transition, of the state that they would send. None: there are none.

    Args:
        versions: of the state of each.
        assigned: what they leave.
        ledgers: of the step that broke.
    """
    move = assigned.move
    work = work_of(assigned.plan if move is None else move.old, ledgers)
    answers = [
        _left(worker, generation, version=version if move is None or worker in work else NO_STATE, work=work)
        for worker, version in versions.items()
    ]
    return replace(answers[0], also=tuple(answers[1:])) if answers else None


def moved(command: AssignPlan, move: Transition, *, num_bytes: int, move_s: float) -> StateMoved:
    """All members of a transition have what they are to have."""
    first, *others = (_moved(worker, command, num_bytes, move_s) for worker in move.members(command.plan))
    return replace(first, also=tuple(others))


def work_of(plan: Plan, ledgers: Mapping[Place, frozenset[Action]]) -> dict[WorkerId, TeamReport]:
    """What every living worker of `plan` has done of the step."""
    nothing = [TeamReport(stages=stages_of(plan, stage)) for stage in range(plan.mesh.pp)]
    reports = [
        TeamReport(stages=nothing[place[1]].stages, done=done, logged=done)
        if (done := ledgers.get(place))
        else nothing[place[1]]
        for place in plan.teams
    ]
    return dict(zip(plan.living, (report for report in reports for _ in range(plan.mesh.tp)), strict=True))


def _left(
    worker: WorkerId, generation: int, *, version: Version, work: Mapping[WorkerId, TeamReport]
) -> GenerationLeft:  # fmt: skip
    step, decided_in = version
    done = work.get(worker) if step >= 0 else None
    return GenerationLeft(
        worker=worker, generation=generation, reason="told to", committed=step, decided_in=decided_in, work=done
    )


def _moved(worker: WorkerId, command: AssignPlan, num_bytes: int, move_s: float) -> StateMoved:
    part = StatePart(worker=worker, step=command.step, skipped=0, position=0, lr=0.0, updates=0, before=(), after=())
    return StateMoved(
        worker=worker, generation=command.generation, part=part, bytes_received=num_bytes, seconds={"move": move_s}
    )
