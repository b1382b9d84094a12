"""What happens when a worker dies.

    1. The first sign - a loss, or a worker that left its generation - breaks the generation for everyone: all who
       are blocked are woken (AbortGeneration), and nothing more is granted.
    2. Settling: every worker of the plan is lost, or has left and said how many steps its state has seen. Who says
       nothing in time is fenced and counts as lost. Checkpoints whose parts all lie on storage are still published.
    3. The ladder, from the rung that loses least:
         every stage has a living team         the step is finished from what is left of it (`control.repairing`)
         nobody is lost and all states agree   the same workers begin the step anew from their own state
         else                                  the newest checkpoint, on the devices that remain
    4. Survivors keep their process; a device that is free gets a fresh worker. A node on which a fresh worker did
       not come to life is a last resort.
    5. Without progress since the last recovery each attempt waits longer, and after `max_restarts` the run ends.

A rung is a function from what is known to a `Resume`; better rungs stand before worse ones in `ladder`.
"""

from dataclasses import dataclass, replace

from raymega.control.arbitration import Decided
from raymega.control.broken import Leaver
from raymega.control.commands import (
    AbortGeneration,
    AssignPlan,
    Command,
    FeedFrom,
    Rewind,
    StartWorkers,
    StopWorkers,
    WriteStep,
)
from raymega.control.decision import Brain, Decision
from raymega.control.ending import end, give_up
from raymega.control.events import CheckpointFailed, CheckpointPublished, ShardsSaved, StepCommitted, Tick
from raymega.control.policy import RESUMABLE, Rules, back_off_s, settle_s
from raymega.control.repairing import CannotMend, Mend, after, assignment_of, mend
from raymega.control.seating import number_of, seated
from raymega.control.states import (
    GENERATIONS,
    Checkpoint,
    Restoring,
    Saving,
    Seat,
    Settling,
    Starting,
    Story,
    Training,
    WaitingForNodes,
)
from raymega.control.stepping import advance, note_saved, note_taken, publish_complete, record_of, with_checkpoint
from raymega.errors import PlanError, WorkerLostError
from raymega.plan.plan import Plan, WorkerId

Running = Starting | Restoring | Training | Saving


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Where to go on: after `step` committed steps, from `checkpoint` or, if `keep_state`, from what workers hold."""

    step: int
    checkpoint: Checkpoint | None
    keep_state: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What broke a generation: workers that are lost with the cause, workers that left with what they said.

    `heard`: the newest decision heard of. `silent_s`: since the last sign of life of the lost.
    """

    reason: str
    lost: tuple[tuple[WorkerId, str], ...] = ()
    left: tuple[Leaver, ...] = ()
    heard: Decided | None = None
    silent_s: float = 0.0


def break_generation(brain: Brain, state: Running, sign: Sign, now: float) -> Decision:
    """End the step for everyone, and find out who is there."""
    training = state.training if isinstance(state, Saving) else state
    held = training if isinstance(training, Training) else None
    mending = training if isinstance(training, Restoring) and training.repair is not None else None
    settling = Settling(
        story=state.story,
        seats=state.seats,
        plan=training.plan,
        held=held is not None or mending is not None,
        lost=sign.lost,
        left=sign.left,
        saves=held.saves if held is not None else (),
        since=now,
        heard=mending.decided if mending is not None and sign.heard is None else sign.heard,
        detect_s=sign.silent_s,
        until=now + settle_s(brain.rules, held.recent_step_s if held is not None else ()),
    )
    lost = tuple(worker for worker, _ in sign.lost)
    abort = AbortGeneration(generation=settling.story.generation, reason=sign.reason, lost=lost)
    commands: tuple[Command, ...] = (abort,)
    if held is not None and held.unwritten is not None:
        commands = (abort, WriteStep(record=held.unwritten))
    settled = settle(brain, settling, now)
    if settled.state is settling:
        return Decision(state=settling, commands=commands, reason=f"{sign.reason}; the step ends for everyone")
    return _after(commands, settled)


def settle(brain: Brain, state: Settling, now: float) -> Decision:
    """Recover once every worker of the plan is known to be lost or to have left; wait otherwise."""
    known = {worker for worker, _ in state.lost} | {said.worker for said in state.left}
    silent = [worker for worker in state.plan.living if worker not in known]
    if silent and now >= state.until:
        cause = f"said nothing for {now - state.since:.1f} s after its generation broke"
        return recover(brain, replace(state, lost=(*state.lost, *((worker, cause) for worker in silent))), now)
    publishing = now < state.until and any(save.publishing for save in state.saves)
    if silent or publishing or _saves_last(brain.rules, state, now):
        return Decision(state=state)
    return recover(brain, state, now)


def _saves_last(rules: Rules, state: Settling, now: float) -> bool:
    """Is the last step committed, and its checkpoint still on its way from those who are all there?"""
    underway = any(save.step == rules.steps for save in state.saves) and now - state.since < rules.save_timeout_s
    return underway and not state.lost and state.story.committed == rules.steps


def committed_before_the_break(brain: Brain, state: Settling, event: StepCommitted, now: float) -> Decision:
    """A step whose commit is heard of only now counts as any other; it may be what the workers' states agree on."""
    story = advance(state.story, event)
    record = record_of(brain.rules, story, state.plan, event)
    saves = note_taken(state.saves, step=event.step, tokens_total=story.tokens_total, now=now)
    return _publish(brain, replace(state, story=story, saves=saves), (WriteStep(record=record),), now)


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
    """Those who have said nothing for too long count as lost."""
    return settle(brain, state, now)


def _publish(brain: Brain, state: Settling, commands: tuple[Command, ...], now: float) -> Decision:
    saves, publish = publish_complete(state.saves, plan=state.plan, generation=state.story.generation)
    return _after((*commands, *publish), settle(brain, replace(state, saves=saves), now))


def recover(brain: Brain, state: Settling, now: float) -> Decision:
    """Choose where to go on and with whom; give up where trying again has brought nothing."""
    mended = mend(brain.rules, state)
    resume = ladder(brain.rules, state, mended)
    if resume.step == brain.rules.steps:
        reason = f"all {resume.step} steps are committed and saved; that the workers are gone does not matter"
        return end(state, exit_code=0, reason=reason, resumable=False)
    gone = {worker for worker, _ in state.lost}
    alive = tuple(seat for seat in state.seats if seat.worker not in gone)
    story = replace(
        _rewound(state.story, resume),
        recoveries=state.story.recoveries + 1,
        steps_lost=state.story.steps_lost + state.story.committed - resume.step,
    )
    fence: tuple[Command, ...] = (StopWorkers(workers=tuple(sorted(gone))),) if gone else ()
    back: tuple[Command, ...] = (Rewind(step=resume.step),) if resume.step < state.story.committed else ()
    cause = "; ".join(f"{worker}: {why}" for worker, why in state.lost) or "the generation broke, nobody is lost"
    if story.recoveries > brain.rules.max_restarts:
        tries = f"{brain.rules.max_restarts} recoveries brought no new step"
        stuck = replace(state, story=replace(story, recoveries=state.story.recoveries))
        return _after(fence + back, give_up(stuck, exit_code=WorkerLostError.exit_code, reason=f"{cause}; {tries}"))
    waiting = WaitingForNodes(story=story, seats=alive, not_before=now + back_off_s(story.recoveries))
    if isinstance(mended, Mend):
        return _after(fence, _repair(state, mended, story, alive, now, cause=cause))
    if resume.keep_state:
        return _assign(waiting, state.plan, alive, now, resume=resume, reason=f"{cause}; {resume.reason}")
    if now < waiting.not_before:
        pause = f"after {waiting.not_before - now:.1f} s, since the last attempt brought no new step"
        return Decision(state=waiting, commands=fence + back, reason=f"{cause}; {resume.reason}, {pause}")
    return _after(fence + back, begin(brain, waiting, now, cause=f"{cause}; {resume.reason}"))


def ladder(rules: Rules, state: Settling, mended: Mend | CannotMend) -> Resume:
    """The rung that loses least. After the last step nothing is left to go on with: it is done again, and saved."""
    story = state.story
    if isinstance(mended, Mend):
        return Resume(step=story.committed, checkpoint=None, keep_state=True, reason=mended.reason)
    left = {said.worker: said.committed for said in state.left}
    agree = all(left.get(worker) == story.committed for worker in state.plan.living)
    fails_again = story.recoveries > 0 and not state.taken_over
    if state.held and agree and not fails_again and story.committed < rules.steps:
        reason = f"every worker goes on from its own state of step {story.committed}"
        return Resume(step=story.committed, checkpoint=story.checkpoint, keep_state=True, reason=reason)
    below = from_checkpoint(story)
    return replace(below, reason=f"{below.reason} ({mended.reason})") if state.held else below


def from_checkpoint(story: Story) -> Resume:
    """The last rung: the newest checkpoint, or the first values."""
    if story.checkpoint is None:
        return Resume(step=0, checkpoint=None, keep_state=False, reason="back to the first values: no checkpoint yet")
    reason = f"back to the checkpoint of step {story.checkpoint.step}"
    return Resume(step=story.checkpoint.step, checkpoint=story.checkpoint, keep_state=False, reason=reason)


def begin(brain: Brain, state: WaitingForNodes, now: float, *, cause: str = "") -> Decision:
    """Plan the next generation on the devices that are there, and go on from the newest checkpoint."""
    try:
        seats, planned = seated(brain, state)
    except PlanError as error:
        why = f"{cause}; {error.message}" if cause else error.message
        return give_up(state, exit_code=error.exit_code if _is_first(state.story) else RESUMABLE, reason=why)
    kept = len({seat.worker for seat in state.seats} & set(planned.plan.workers))
    staff = f"{kept} workers stay, {len(planned.plan.workers) - kept} are started"
    reason = "; ".join(part for part in (cause, staff, planned.reason) if part)
    return _assign(state, planned.plan, seats, now, resume=from_checkpoint(state.story), reason=reason)


def _repair(
    state: Settling, mended: Mend, story: Story, seats: tuple[Seat, ...], now: float, *, cause: str
) -> Decision:
    """Give the survivors their parts of the step that broke. They wait in mid-step, so it is done at once."""
    story = replace(story, generation=story.next_generation)
    assign = assignment_of(mended, generation=story.generation)
    return Decision(
        state=after(state, mended, story=story, seats=seats, now=now),
        commands=(assign, FeedFrom(step=assign.step)),
        reason=f"{cause}; {mended.reason}",
    )


def _assign(
    state: WaitingForNodes, plan: Plan, seats: tuple[Seat, ...], now: float, *, resume: Resume, reason: str
) -> Decision:
    """Start the workers that `seats` adds, and give all of the plan their place in the next generation."""
    alive = {seat.worker for seat in state.seats}
    fresh = tuple(seat for seat in seats if seat.worker not in alive)
    story = replace(
        state.story,
        generation=state.story.next_generation,
        next_worker=max((number_of(seat.worker) + 1 for seat in fresh), default=state.story.next_worker),
    )
    kind = Starting if _is_first(state.story) else Restoring
    names = frozenset(seat.worker for seat in fresh)
    assign = AssignPlan(
        generation=story.generation,
        plan=plan,
        step=resume.step,
        checkpoint=resume.checkpoint,
        keep_state=resume.keep_state,
    )
    starts: tuple[Command, ...] = (StartWorkers(seats=fresh),) if fresh else ()
    after = kind(story=story, seats=seats, plan=plan, since=now, fresh=names)
    return Decision(state=after, commands=(*starts, assign, FeedFrom(step=resume.step)), reason=reason)


def _is_first(story: Story) -> bool:
    """Has this controller not yet made a generation?"""
    return story.generation % GENERATIONS == 0


def _rewound(story: Story, resume: Resume) -> Story:
    """The story as it stands after `resume.step` steps."""
    if resume.step == story.committed:
        return story
    tokens = resume.checkpoint.tokens_total if resume.checkpoint is not None else 0
    return replace(story, committed=resume.step, tokens_total=tokens, skipped_in_row=0)


def _after(first: tuple[Command, ...], decision: Decision) -> Decision:
    return replace(decision, commands=(*first, *decision.commands))
