"""A notice that no plan can answer: what would be lost with the node is saved before it goes.

    steps   ... 11  12  13 | 14  15 ...      leave is given up to 13: nobody has begun step 14, which is saved
                 notice    granted           once for each notice; the run goes on until the node is gone

What is underway already, or as new, does. A run that is held, and begins no step, saves the one it stands at.
"""

from dataclasses import dataclass, replace

from raymega.control.commands import Command, Grant
from raymega.control.policy import Rules
from raymega.control.states import SavesUnderway, Training

STAYS = "the state of this run cannot be moved: its model is the user's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The training with its save on the way. `reason`: empty where the notice was dealt with before."""

    training: Training
    commands: tuple[Command, ...] = ()
    reason: str = ""


def keep_safe(rules: Rules, training: Training, *, why: str, now: float) -> Kept:
    """Order a checkpoint for the nodes that are to go, and that nobody can take over from because of `why`."""
    story = training.story
    if not story.outlook.draining:
        return Kept(training=training)
    living = set(training.plan.living)
    at = {seat.node for seat in training.seats if seat.worker in living} & story.outlook.leaving
    fresh = sorted(at - story.outlook.saved_for)
    if not fresh:
        return Kept(training=training)
    kept = _saved(rules, training, now)
    story = kept.training.story
    story = replace(story, outlook=replace(story.outlook, saved_for=story.outlook.saved_for | at))
    told = f"nothing can take over from {', '.join(fresh)} in time: {kept.reason} ({why})"
    return replace(kept, training=replace(kept.training, story=story), reason=told)


def _saved(rules: Rules, training: Training, now: float) -> Kept:
    """The newest boundary at which all can save alike."""
    story, step = training.story, training.granted + 1
    underway = [save.step for save in training.saves if save.step >= story.committed]
    if underway:
        return Kept(training=training, reason=f"the checkpoint of step {underway[-1]} is underway")
    if story.checkpoint is not None and story.safe_step == story.committed:
        return Kept(training=training, reason=f"the checkpoint of step {story.safe_step} is complete")
    if _stands(rules, training):
        return _saved_where_it_stands(training, now)
    if step >= rules.steps:
        return Kept(training=training, reason=f"step {rules.steps} is the last, which is saved anyway")
    course = story.course.with_save(step, safe_step=story.safe_step)
    training = replace(training, story=replace(story, course=course))
    return Kept(training=training, reason=f"a checkpoint is saved at the next step, {step}")


def _stands(rules: Rules, training: Training) -> bool:
    """Is no leave to come? Where sums are coded a step that is saved must be known before it is begun."""
    hold, reached = training.story.course.hold, training.granted == training.story.committed
    return hold is not None and training.granted >= hold and (reached or not rules.codes)


def _saved_where_it_stands(training: Training, now: float) -> Kept:
    story, step = training.story, training.granted
    save = SavesUnderway(step=step)
    if step == story.committed:
        save = replace(save, since=now, tokens_total=story.tokens_total)
    grant = Grant(generation=story.generation, until=step, save_at=(step,))
    training = replace(training, saves=(*training.saves, save))
    return Kept(training=training, commands=(grant,), reason=f"step {step}, at which the run is held, is saved")
