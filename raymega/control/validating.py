"""Where a step's record waits for its validation loss, and who takes that loss again where a break has cut it off.

    commit of k, which is evaluated     its record is held in the story, whatever state the run is in
    Evaluated(k)                        it is written with the loss; one that comes before the commit waits for it
    the generation breaks               it is held on: whoever lives and has the loss tells it when it leaves
    nobody who lives has the loss       then nobody has begun k + 1: the next generation evaluates first
    commit of k + 1, or the run's end   it is written as it is: nothing waits for it
    the run goes back behind k          it is void; k is done again

An evaluation ends with a sum over everybody, and everybody gets the loss. So who has begun k + 1 has the loss of k, and
what is kept of a broken step is never of one before which somebody evaluates again.
"""

from dataclasses import replace

from raymega.control.commands import AssignPlan, Command, Evaluate, WriteStep
from raymega.control.decision import Decision
from raymega.control.events import Evaluated
from raymega.control.policy import Rules
from raymega.control.states import Story
from raymega.metrics import StepRecord

Written = tuple[Command, ...]


def with_record(rules: Rules, story: Story, record: StepRecord) -> tuple[Story, Written]:
    """Write the record of the newest step, or hold it until its loss is known; one that was held is written first."""
    written = unwritten(story)
    if not rules.is_evaluated(record.step):
        return replace(story, unwritten=None), (*written, WriteStep(record=record))
    if story.validated is None or story.validated[0] != record.step:
        return replace(story, unwritten=record), written
    whole = replace(record, val_loss=story.validated[1])
    return replace(story, unwritten=None, validated=None), (*written, WriteStep(record=whole))


def with_loss(story: Story, event: Evaluated) -> tuple[Story, Written]:
    """Write the record that waits for this loss, or keep the loss for a step that is heard of next; else neither."""
    record = story.unwritten
    if record is not None and record.step == event.after_step:
        return replace(story, unwritten=None), (WriteStep(record=replace(record, val_loss=event.loss)),)
    if event.after_step == story.committed + 1:
        return replace(story, validated=(event.after_step, event.loss)), ()
    return story, ()


def unwritten(story: Story) -> Written:
    """The record that is held, as it is."""
    return () if story.unwritten is None else (WriteStep(record=story.unwritten),)


def with_evaluation(decision: Decision) -> Decision:
    """Where a record waits for its loss, whoever gets a place evaluates before the next step."""
    record = decision.state.story.unwritten
    if record is None:
        return decision
    commands: list[Command] = []
    for command in decision.commands:
        if isinstance(command, AssignPlan):
            rows = Evaluate(generation=command.generation, after_step=record.step)
            commands += [replace(command, evaluate=True), rows]
        else:
            commands.append(command)
    return replace(decision, commands=tuple(commands))
