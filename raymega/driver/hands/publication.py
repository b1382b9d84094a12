"""What comes of asking for a checkpoint: it is published, or it is said why not."""

from raymega.checkpoint.store import join_uri
from raymega.control.commands import PublishCheckpoint
from raymega.control.events import CheckpointFailed, CheckpointPublished
from raymega.driver.hands.membership import Membership
from raymega.driver.hands.publishing import Publisher
from raymega.errors import StateError
from raymega.layout.checkpoint_layout import directory_of


def outcome_of(
    command: PublishCheckpoint, *, membership: Membership, publisher: Publisher
) -> CheckpointPublished | CheckpointFailed:
    """Carry `command` out, and tell what came of it."""
    step, tokens_total = command.step, command.tokens_total
    counted = membership.counted(generation=command.generation, step=step)
    if counted is None:
        return CheckpointFailed(step=step, reason="a newer generation goes on from an older step")
    try:
        publisher.publish(
            step=step, generation=command.generation, workers=command.workers, tokens_total=tokens_total,
            skipped=counted.skipped, scale=counted.scale,
        )  # fmt: skip
    except (StateError, OSError) as error:
        return CheckpointFailed(step=step, reason=str(error))
    return CheckpointPublished(
        step=step, uri=join_uri(publisher.directory, directory_of(step)), tokens_total=tokens_total
    )
