"""What a committed step leads to: its record, more leave, a checkpoint, a validation, or the end of the steps.

    StepCommitted(k)   record k  ->  grant on, or Saving once the boundary is reached
    ShardsSaved        all workers of the plan saved k, and k is committed  ->  PublishCheckpoint(k)
    Evaluated(k)       the record of k gets its validation loss and is written

Reports of different workers overtake each other: a worker may have saved step k, or validated after it, before
rank 0's report of k is heard of. What comes early is kept until then.
"""

from dataclasses import replace

from raymega.config.fault import counted, were
from raymega.control.broken import RepairUnderway
from raymega.control.commands import Command, PublishCheckpoint, WriteRepair
from raymega.control.decision import Brain, Decision
from raymega.control.ending import cut_short, finish, give_up, is_overdue, is_saved, where_to_resume
from raymega.control.events import (
    CheckpointFailed,
    CheckpointPublished,
    Evaluated,
    SaveFailed,
    ShardsSaved,
    StepCommitted,
    Tick,
)
from raymega.control.policy import RECENT_STEPS, Rules
from raymega.control.preparing import proceed
from raymega.control.quiet import leave_in_between
from raymega.control.states import Checkpoint, SavesUnderway, Saving, State, Stopping, Story, Training, with_story
from raymega.control.story import RECENT_TOKENS
from raymega.control.validating import with_loss, with_record
from raymega.errors import NonFiniteError, RaymegaBug, StateError
from raymega.metrics import StepRecord
from raymega.plan.plan import Plan


def step_committed(brain: Brain, state: Training | Stopping, event: StepCommitted, now: float) -> Decision:
    """Record the step; then go on, stop because too many steps were skipped, or save because none is left."""
    training = state if isinstance(state, Training) else state.training
    training, leave = leave_in_between(brain.rules, training, event)
    training, written = commit(brain.rules, training, event, now)
    after: State = training if isinstance(state, Training) else replace(state, training=training)
    if event.overflow == "final":
        way_out = "Train in bf16, which needs no loss scale, or with a lower lr"
        reason = f"step {event.step} was skipped, since {event.reason}, which is the lowest. {way_out}"
        return _then(written, give_up(after, exit_code=NonFiniteError.exit_code, reason=reason))
    if training.story.skipped_in_row > brain.rules.max_nonfinite_steps:
        skipped = training.story.skipped_in_row
        reason = f"{counted(skipped, noun='step')} in a row {were(skipped)} not finite, up to step {event.step}"
        return _then(written, give_up(after, exit_code=NonFiniteError.exit_code, reason=reason))
    training, publish = _published(training)
    commands = (*leave, *written, *publish)
    stop = state.stop if isinstance(state, Stopping) else None
    if event.step == brain.rules.steps or (stop is not None and event.step == training.granted):
        saving = Saving(training=training, stop=stop, since=now)
        return Decision(state=saving, commands=commands, reason=f"step {event.step} is committed; it is saved last")
    if stop is not None:
        return Decision(state=Stopping(training=training, stop=stop), commands=commands)
    return _then(commands, proceed(brain, training, now))


def commit(rules: Rules, training: Training, event: StepCommitted, now: float) -> tuple[Training, tuple[Command, ...]]:
    """Count the step; its record is written now, or once its validation loss is known."""
    story = advance(training.story, event)
    story, written = with_record(rules, story, record_of(rules, story, training.plan, event))
    steps_s = (event.step_s,) * min(event.count, RECENT_STEPS)
    if training.repair is not None:
        written = (*written, _repaired(training.repair, now))
        steps_s = ()  # of what was left of the step: it says nothing of the next
    committed = replace(
        training,
        story=story,
        repair=None,
        recent_step_s=(*training.recent_step_s, *steps_s)[-RECENT_STEPS:],
        saves=note_taken(training.saves, step=event.step, tokens_total=story.tokens_total, now=now),
    )
    return committed, written


def _repaired(repair: RepairUnderway, now: float) -> WriteRepair:
    return WriteRepair(
        step=repair.step,
        missing=repair.missing,
        recomputed=repair.recomputed,
        detect_s=repair.detect_s,
        regroup_s=repair.ready_at - repair.since,
        repair_s=now - repair.ready_at,
        predicted_s=repair.predicted_s,
    )


def advance(story: Story, event: StepCommitted) -> Story:
    """The story with the committed steps of `event`. Steps come one by one, whatever else goes wrong."""
    if event.step != story.committed + event.count:
        raise RaymegaBug(f"step {event.step} was reported as committed after step {story.committed}")
    progress = event.step > story.furthest
    return replace(
        story,
        committed=event.step,
        furthest=max(story.furthest, event.step),
        tokens_total=story.tokens_total + event.tokens * event.count,
        recent_tokens=(*story.recent_tokens, *(event.tokens,) * min(event.count, RECENT_TOKENS))[-RECENT_TOKENS:],
        recoveries=0 if progress else min(story.recoveries, story.rewinds),
        rewinds=0 if progress else story.rewinds,
        decided=event.decided,
        # a loss scale that looks for its place skips steps, and that is no fault of theirs
        skipped_in_row=story.skipped_in_row + event.count * (event.overflow is None) if event.skipped else 0,
    )


def evaluated(brain: Brain, state: Training | Stopping | Saving, event: Evaluated, now: float) -> Decision:
    """Give the record of its step the validation loss, and write it."""
    training = state if isinstance(state, Training) else state.training
    story, written = with_loss(training.story, event)
    after = _with_training(state, replace(training, story=story))
    if not written:
        return Decision(state=after)
    reason = f"validation loss {event.loss:.4f} after step {event.after_step}"
    return _then(written, _finished_or(brain, after, reason))


def shards_saved(brain: Brain, state: Training | Stopping | Saving, event: ShardsSaved, now: float) -> Decision:
    """Publish the checkpoint once the last worker of the plan has saved its part."""
    training = state if isinstance(state, Training) else state.training
    training, publish = _published(replace(training, saves=note_saved(training.saves, event)))
    reason = f"all shards of step {event.step} are saved; the checkpoint is published" if publish else ""
    return Decision(state=_with_training(state, training), commands=publish, reason=reason)


def note_saved(saves: tuple[SavesUnderway, ...], event: ShardsSaved) -> tuple[SavesUnderway, ...]:
    """Add to those that saved; a save that was given up is not taken up again."""
    return tuple(
        replace(save, saved=save.saved | {event.worker, *event.also}) if save.step == event.step else save
        for save in saves
    )


def note_taken(
    saves: tuple[SavesUnderway, ...], *, step: int, tokens_total: int, now: float
) -> tuple[SavesUnderway, ...]:
    """The snapshot of `step`, if one is due, is taken: the time of its save runs from now."""
    return tuple(replace(save, since=now, tokens_total=tokens_total) if save.step == step else save for save in saves)


def publish_complete(
    saves: tuple[SavesUnderway, ...], *, plan: Plan, generation: int
) -> tuple[tuple[SavesUnderway, ...], tuple[Command, ...]]:
    """Ask for the manifest of every save that is complete and not yet asked for."""
    commands: list[Command] = []
    noted: list[SavesUnderway] = []
    for save in saves:
        complete = len(save.saved) >= len(plan.living) and save.saved >= set(plan.living)
        ask = complete and save.tokens_total is not None and not save.publishing
        if ask and save.tokens_total is not None:
            commands.append(
                PublishCheckpoint(
                    step=save.step, generation=generation, workers=plan.living, tokens_total=save.tokens_total
                )
            )
        noted.append(replace(save, publishing=True) if ask else save)
    return tuple(noted), tuple(commands)


def checkpoint_published(brain: Brain, state: State, event: CheckpointPublished, now: float) -> Decision:
    """A newer checkpoint exists; in Saving, the run is done."""
    after = with_story(state, with_checkpoint(state.story, event))
    reason = f"the checkpoint of step {event.step} is complete"
    if isinstance(after, Training | Stopping | Saving):
        return _finished_or(brain, _without_save(after, event.step), reason)
    return Decision(state=after, reason=reason)


def with_checkpoint(story: Story, event: CheckpointPublished) -> Story:
    """The story with its newest checkpoint, which is progress; not with one of rewound steps, nor an older one."""
    if not story.safe_step < event.step <= story.committed:
        return story
    newest = Checkpoint(step=event.step, uri=event.uri, tokens_total=event.tokens_total)
    return replace(story, checkpoint=newest, recoveries=0, rewinds=0)


def save_failed(brain: Brain, state: Training | Stopping | Saving, event: SaveFailed, now: float) -> Decision:
    """One part is missing, so there is no checkpoint of this step."""
    return _dropped(state, event.step, f"{event.worker} could not save its part: {event.reason}")


def checkpoint_failed(
    brain: Brain, state: Training | Stopping | Saving, event: CheckpointFailed, now: float
) -> Decision:
    """The manifest could not be published."""
    return _dropped(state, event.step, event.reason)


def time_passes(brain: Brain, state: Training | Stopping | Saving, event: Tick, now: float) -> Decision:
    """End a stop whose grace is used up; give up a save that takes too long, and name who is late."""
    stop = None if isinstance(state, Training) else state.stop
    if isinstance(state, Stopping | Saving) and is_overdue(stop, now):
        return cut_short(state, "the grace is used up")
    training = state if isinstance(state, Training) else state.training
    for save in training.saves:
        if save.since is not None and now - save.since > brain.rules.save_timeout_s:
            late = ", ".join(sorted(set(training.plan.living) - save.saved)) or "the manifest"
            return _dropped(state, save.step, f"not complete after {now - save.since:.0f} s, waiting for {late}")
    if isinstance(state, Saving) and now - state.since > brain.rules.save_timeout_s:
        return _dropped(state, training.story.committed, f"not complete after {now - state.since:.0f} s")
    return Decision(state=state)


def record_of(rules: Rules, story: Story, plan: Plan, event: StepCommitted) -> StepRecord:
    """The line of the step that `story` has just been advanced by."""
    return StepRecord(
        step=event.step,
        loss=event.loss,
        grad_norm=event.grad_norm,
        lr=event.lr,
        tokens=event.tokens,
        tokens_total=story.tokens_total,
        first_sample=(event.step - 1) * rules.batch_size,
        samples=rules.batch_size,
        step_s=event.step_s,
        tokens_per_s=event.tokens / event.step_s if event.step_s > 0 else 0.0,
        mesh=str(plan.mesh),
        generation=event.generation,
        skipped=event.skipped,
        loss_scale=event.loss_scale,
        t=event.t,
    )


def _published(training: Training) -> tuple[Training, tuple[Command, ...]]:
    saves, commands = publish_complete(training.saves, plan=training.plan, generation=training.story.generation)
    return replace(training, saves=saves), commands


def _without_save(state: Training | Stopping | Saving, step: int) -> Training | Stopping | Saving:
    training = state if isinstance(state, Training) else state.training
    saves = tuple(save for save in training.saves if save.step != step)
    return _with_training(state, replace(training, saves=saves))


def _dropped(state: Training | Stopping | Saving, step: int, why: str) -> Decision:
    """There is no checkpoint of `step`; that ends the run only if it was the last one."""
    after = _without_save(state, step)
    reason = f"the checkpoint of step {step} is given up: {why}"
    if isinstance(after, Saving) and step == after.story.committed:
        return give_up(after, exit_code=StateError.exit_code, reason=reason)
    kept = where_to_resume(after.story)
    return Decision(state=after, reason=f"{reason}; training goes on, {kept}")


def _finished_or(brain: Brain, state: Training | Stopping | Saving, reason: str) -> Decision:
    """Finish if the last step is saved and its record is written; else go on."""
    if isinstance(state, Saving) and is_saved(state) and state.story.unwritten is None:
        return finish(brain, state)
    return Decision(state=state, reason=reason)


def _with_training(state: Training | Stopping | Saving, training: Training) -> Training | Stopping | Saving:
    return training if isinstance(state, Training) else replace(state, training=training)


def _then(first: tuple[Command, ...], decision: Decision) -> Decision:
    return replace(decision, commands=(*first, *decision.commands))
