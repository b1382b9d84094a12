"""What is written down of a transition: what it was for, what was predicted, what it took."""

from raymega.control.changing import MoveUnderway
from raymega.control.commands import WriteTransition


def written(move: MoveUnderway, *, certified: bool, bytes_moved: int, reason: str, now: float) -> WriteTransition:
    """What became of a transition, beside what was predicted of it."""
    change = move.change
    return WriteTransition(
        cause=change.cause,
        certified=certified,
        step=move.step,
        before=move.transition.old.mesh,
        after=change.plan.mesh,
        bytes_moved=bytes_moved,
        prepare_s=move.since - change.since,
        predicted_s=change.predicted_s,
        actual_s=now - move.since,
        predicted_step_s=change.predicted_step_s,
        reason=reason,
    )
