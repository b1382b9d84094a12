"""What is true of every state that can be reached; broken only by a bug of ours.

every worker has one seat, every device one worker        every worker of the plan has a seat
checkpoint <= committed <= furthest <= steps              committed <= granted <= steps
nobody has leave beyond a boundary                        who has a part in a transition has a seat
exit code 0 only if the steps asked for are committed and saved, or the user stopped and all is saved (law 10)
"""

from raymega.control.ladder import Rung
from raymega.control.policy import Rules
from raymega.control.states import (
    Finished,
    Moving,
    Restoring,
    Saving,
    Settling,
    Starting,
    State,
    Stopping,
    Training,
    members_of,
    seats_of,
)
from raymega.errors import RaymegaBug


def validate_state(state: State, rules: Rules) -> None:
    """Raise RaymegaBug naming every invariant that `state` breaks."""
    broken = [what for what, holds in _invariants(state, rules).items() if not holds]
    if broken:
        raise RaymegaBug(f"not true of {state}: {'; '.join(broken)}")


def _invariants(state: State, rules: Rules) -> dict[str, bool]:
    story, seats = state.story, seats_of(state)
    workers = [seat.worker for seat in seats]
    return {
        "a worker has one seat": len(set(workers)) == len(workers),
        "a device has one worker": len({(seat.node, seat.device) for seat in seats}) == len(seats),
        "a worker's id is never used again": all(int(worker[1:]) < story.next_worker for worker in workers),
        "everyone without whom it cannot go on has a seat": set(members_of(state)) <= set(workers),
        "checkpoint <= committed <= furthest": story.safe_step <= story.committed <= story.furthest,
        "a run that starts has steps left": story.committed <= max(rules.steps, story.safe_step),
        "a record waits for the loss of the newest step": story.unwritten is None
        or story.unwritten.step == story.committed,
        "no more recoveries than allowed": story.recoveries <= rules.max_restarts,
        **_of_running(state, rules),
    }


def _of_running(state: State, rules: Rules) -> dict[str, bool]:
    story = state.story
    match state:
        case Training():
            return _of_training(state, rules)
        case Stopping():
            return {
                **_of_training(state.training, rules),
                "the boundary is saved": any(save.step == state.training.granted for save in state.training.saves)
                or story.committed < state.training.granted,
            }
        case Saving():
            asked = rules.steps if state.stop is None else state.training.granted
            return {"all steps that were left to do are committed": story.committed == asked}
        case Moving():
            return {
                "there are steps left": story.committed < rules.steps,
                "everyone stands at the boundary": story.committed == state.move.step,
                "all who have a part have a seat": set(state.move.members) <= {seat.worker for seat in state.seats},
                "everyone who has a part is up, or nothing can train before it is": _restores(state)
                or all(map(story.outlook.is_born, state.move.members)),
                "who has told has a part": {part.worker for part in state.move.parts} <= set(state.move.members),
            }
        case Restoring(saves_only=True):
            return {"everyone has what is saved": state.keeps}
        case Starting() | Restoring():
            return {"there are steps left": story.committed < rules.steps}
        case Settling():
            lost, left = {worker for worker, _ in state.lost}, {said.worker for said in state.left}
            return {"a worker is lost or has left, not both": not lost & left}
        case Finished(exit_code=0):
            return {"exit code 0 loses nothing": story.safe_step == story.committed}
        case _:
            return {}


def _restores(state: Moving) -> bool:
    return state.move.change.rung is Rung.PEER_COPY


def _of_training(training: Training, rules: Rules) -> dict[str, bool]:
    steps, change = [save.step for save in training.saves], training.change
    boundary = None if change is None else change.boundary
    return {
        "committed <= granted <= steps": training.story.committed <= training.granted <= rules.steps,
        "there are steps left": training.story.committed < rules.steps,
        "a step is saved once": len(set(steps)) == len(steps),
        "saves are of granted steps": all(step <= training.granted for step in steps),
        "nobody has leave beyond a boundary": boundary is None or training.granted <= boundary < rules.steps,
    }
