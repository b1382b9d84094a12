"""What is heard of while a generation is broken: commits, parts of checkpoints, time. None of it is lost.

A commit whose report comes late counts, and so does a validation; a checkpoint whose parts all lie on storage is still
published. Who is lost and who has left is heard of in `control.membership`; what follows once all are known is decided
in `control.recovery`.
"""

from dataclasses import replace

from raymega.control.commands import Command
from raymega.control.decision import Brain, Decision
from raymega.control.ending import cut_short, is_overdue
from raymega.control.events import (
    CheckpointFailed,
    CheckpointPublished,
    Evaluated,
    ShardsSaved,
    StepCommitted,
    Tick,
)
from raymega.control.recovery import settle
from raymega.control.states import Settling
from raymega.control.stepping import advance, note_saved, note_taken, publish_complete, record_of, with_checkpoint
from raymega.control.validating import with_loss, with_record


def committed_before_the_break(brain: Brain, state: Settling, event: StepCommitted, now: float) -> Decision:
    """A step whose commit is heard of only now counts as any other; it may be what the workers' states agree on."""
    story = advance(state.story, event)
    story, written = with_record(brain.rules, story, record_of(brain.rules, story, state.plan, event))
    saves = note_taken(state.saves, step=event.step, tokens_total=story.tokens_total, now=now)
    return _publish(brain, replace(state, story=story, saves=saves), written, now)


def evaluated_before_the_break(brain: Brain, state: Settling, event: Evaluated, now: float) -> Decision:
    """The record that waits for this loss is written."""
    story, written = with_loss(state.story, event)
    return Decision(state=replace(state, story=story), commands=written)


def saved_before_the_break(brain: Brain, state: Settling, event: ShardsSaved, now: float) -> Decision:
    """A part of a checkpoint is on storage; with all parts there it is published, break or no break."""
    return _publish(brain, replace(state, saves=note_saved(state.saves, event)), (), now)


def publishing_ended(
    brain: Brain, state: Settling, event: CheckpointPublished | CheckpointFailed, now: float
) -> Decision:
    """The newest checkpoint is known now."""
    saves = tuple(save for save in state.saves if save.step != event.step)
    story = with_checkpoint(state.story, event) if isinstance(event, CheckpointPublished) else state.story
    return settle(brain, replace(state, story=story, saves=saves), now)


def time_passes(brain: Brain, state: Settling, event: Tick, now: float) -> Decision:
    """Those who have said nothing for too long count as lost; a stop has its own end."""
    return cut_short(state, "the grace is used up") if is_overdue(state.stop, now) else settle(brain, state, now)


def _publish(brain: Brain, state: Settling, commands: tuple[Command, ...], now: float) -> Decision:
    saves, publish = publish_complete(state.saves, plan=state.plan, generation=state.story.generation)
    decision = settle(brain, replace(state, saves=saves), now)
    return replace(decision, commands=(*commands, *publish, *decision.commands))
