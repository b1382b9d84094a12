"""What happens when a worker dies.

1. The first sign - a loss, or a worker that left its generation - breaks the generation for everyone: all who
   are blocked are woken (AbortGeneration), and nothing more is granted. A transition breaks in the same way.
2. Settling: every worker of the plan is lost, or has left and said how many steps its state has seen. Who says
   nothing in time is fenced and counts as lost. Checkpoints whose parts all lie on storage are still published.
3. The ladder, from the rung that loses least; where memory ran out, the step begins anew in smaller micro-batches:
     every stage has a living team         the step is finished from what is left of it (`control.repairing`);
                                           after a broken transition, all of it is done by the plan before;
                                           in the last save no step is left, and it is saved again
     nobody is lost and all states agree   the same workers begin the step anew from their own state
     peers keep copies of what is lost     all go on from the newest step of which all is kept (`control.restoring`)
     else                                  the newest checkpoint, on the devices that remain
   A stop that was asked for follows the first two, and ends the run at the third. Where people have asked to go back
   (`control.going_back`) the last rung is the only one.
4. Survivors keep their process; a device that is free gets a fresh worker. A node on which a fresh worker did
   not come to life is a last resort.
5. Without progress since the last recovery each attempt waits longer, and after `max_restarts` the run ends. That nodes
   go, where the step is gone on with, is no such attempt: of a step of minutes many may go.
"""

from dataclasses import dataclass, replace

from raymega.config.fault import counted
from raymega.control.broken import Sign
from raymega.control.commands import (
    AbortGeneration,
    AssignPlan,
    Command,
    FeedFrom,
    Rewind,
    StartWorkers,
    StopWorkers,
)
from raymega.control.copies_found import CopiesFound
from raymega.control.decision import Brain, Decision
from raymega.control.ending import cut_short, end_saved, give_up
from raymega.control.out_of_memory import TooLarge, ease
from raymega.control.outlook import Outlook, Wish
from raymega.control.policy import RESUMABLE, Rules, back_off_s, settle_s
from raymega.control.preparing import with_step_price
from raymega.control.repairing import CannotMend, Mend, after, assignment_of, is_last_save, is_of_nodes, mend
from raymega.control.restoring import find, is_restoring, reason_of, restore
from raymega.control.seating import number_of, seated, staff_of
from raymega.control.states import (
    GENERATIONS,
    Checkpoint,
    Moving,
    Restoring,
    Saving,
    Seat,
    Settling,
    Starting,
    Stopping,
    Story,
    Training,
    WaitingForNodes,
    members_of,
)
from raymega.control.written import written
from raymega.errors import PlanError, WorkerLostError
from raymega.plan.plan import Plan

HOLD_S = 2.0  # a guess: after the first transition that broke, and twice as long after each further one
Running = Starting | Restoring | Training | Stopping | Saving | Moving


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """After `step` committed steps; from what workers hold if `keep_state`, else from `copied`, else `checkpoint`."""

    step: int
    checkpoint: Checkpoint | None
    keep_state: bool
    reason: str
    copied: CopiesFound | None = None


def break_generation(brain: Brain, state: Running, sign: Sign, now: float) -> Decision:
    """End the step for everyone, and find out who is there."""
    settling = _settling(brain, state, sign, now)
    lost = tuple(worker for worker, _ in sign.lost)
    abort = AbortGeneration(generation=settling.story.generation, reason=sign.reason, lost=lost)
    settled = settle(brain, settling, now)
    if settled.state is settling:
        return Decision(state=settling, commands=(abort,), reason=f"{sign.reason}; the step ends for everyone")
    return _after((abort,), settled)


def _settling(brain: Brain, state: Running, sign: Sign, now: float) -> Settling:
    training = state.training if isinstance(state, Stopping | Saving) else state
    held = with_step_price(training) if isinstance(training, Training) else None
    mending = training if isinstance(training, Restoring) and training.keeps else None
    move = training.move if isinstance(training, Moving) else None
    steps = held.recent_step_s if held is not None else ()
    return Settling(
        story=state.story if held is None else held.story,
        seats=state.seats,
        plan=training.plan if move is None else move.transition.old,
        held=held is not None or mending is not None or move is not None,
        lost=sign.lost,
        left=sign.left,
        saves=held.saves if held is not None else (),
        since=now,
        detect_s=sign.silent_s,
        until=now + settle_s(brain.rules, steps),
        move=move,
        stop=state.stop if isinstance(state, Stopping | Saving | Restoring | Moving) else None,
        step_s=max(steps, default=0.0),
        begins_anew=mending is not None and mending.repair is None,
        saves_only=isinstance(state, Saving) or (mending is not None and mending.saves_only),
    )


def settle(brain: Brain, state: Settling, now: float) -> Decision:
    """Recover once every worker of the plan is known to be lost or to have left; wait otherwise."""
    if len(state.lost) + len(state.left) < len(members_of(state)) and now < state.until:
        return Decision(state=state)
    known = {worker for worker, _ in state.lost} | {said.worker for said in state.left}
    silent = [worker for worker in members_of(state) if worker not in known]
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


def recover(brain: Brain, state: Settling, now: float) -> Decision:
    """Choose where to go on and with whom; give up where trying again has brought nothing."""
    if is_last_save(brain.rules, state) and state.story.safe_step == state.story.committed:
        return end_saved(brain, state, "that workers are gone does not matter")
    eased = ease(state, mend(brain, state))
    if isinstance(eased, TooLarge):
        return give_up(state, exit_code=PlanError.exit_code, reason=eased.reason)
    state, mended = eased.state, eased.mended
    resume = ladder(brain.rules, state, mended, copied=find(brain, state))
    cause = "; ".join(f"{worker}: {why}" for worker, why in state.lost) or _without_loss(state)
    if state.stop is not None and not resume.keep_state and resume.copied is None:
        return cut_short(state, f"{cause}; {resume.reason}")
    gone = {worker for worker, _ in state.lost} | set(mended.void if isinstance(mended, Mend) else ())
    alive = tuple(seat for seat in state.seats if seat.worker not in gone)
    story = _counted(state, _rewound(state.story, resume), mended).owing(save.step for save in state.saves)
    story = replace(story, outlook=_after_move(state, now), validated=None)
    fence: tuple[Command, ...] = (StopWorkers(workers=tuple(sorted(gone))),) if gone else ()
    if state.move is not None:
        fence = (*fence, written(state.move, certified=False, bytes_moved=0, reason=f"rolled back: {cause}", now=now))
    back: tuple[Command, ...] = (Rewind(step=resume.step),) if resume.step < state.story.committed else ()
    if story.recoveries > brain.rules.max_restarts:
        tries = f"{counted(brain.rules.max_restarts, noun='recovery')} brought no new step"
        stuck = replace(state, story=replace(story, recoveries=state.story.recoveries))
        return _after(fence + back, give_up(stuck, exit_code=WorkerLostError.exit_code, reason=f"{cause}; {tries}"))
    waiting = WaitingForNodes(story=story, seats=alive, not_before=now + back_off_s(story.recoveries))
    if isinstance(mended, Mend):
        return _after(fence, _repair(state, mended, story, alive, now, cause=cause))
    if resume.keep_state:
        again = _assign(waiting, state.plan, alive, now, resume=resume, reason=f"{cause}; {resume.reason}")
        if isinstance(again.state, Restoring) and state.stop is not None:
            again = replace(again, state=replace(again.state, stop=state.stop))
        return _after(fence, again)
    restored = restore(brain, waiting, state, resume.copied, now, cause=f"{cause}; {resume.reason}")
    if restored is not None:
        return _after(fence + back, restored)
    if now < waiting.not_before:
        pause = f"after {waiting.not_before - now:.1f} s, since the last attempt brought no new step"
        return Decision(state=waiting, commands=fence + back, reason=f"{cause}; {resume.reason}, {pause}")
    return _after(fence + back, begin(brain, waiting, now, cause=f"{cause}; {resume.reason}"))


def _after_move(state: Settling, now: float) -> Outlook:
    """No other transition at once after one that broke; what was asked for and refused is not tried again."""
    outlook, move, wish = state.story.outlook, state.move, state.story.outlook.wish
    if move is None:
        return outlook
    hold_until = now + HOLD_S * 2**outlook.rollbacks
    if wish.pending and not state.lost:
        wish = Wish(mesh=move.transition.old.mesh)
    return replace(outlook, rollbacks=outlook.rollbacks + 1, hold_until=hold_until, wish=wish)


def ladder(rules: Rules, state: Settling, mended: Mend | CannotMend, *, copied: CopiesFound | None = None) -> Resume:
    """The rung that loses least."""
    story = state.story
    if isinstance(mended, Mend):
        return Resume(step=story.committed, checkpoint=None, keep_state=True, reason=mended.reason)
    left = {said.worker: said.committed for said in state.left}
    agree = all(left.get(worker) == story.committed for worker in state.plan.living)
    fails_again = story.recoveries > 1 and not state.taken_over
    if state.held and agree and not is_restoring(state) and not fails_again and story.committed < rules.steps:
        reason = f"every worker goes on from its own state of step {story.committed}"
        return Resume(step=story.committed, checkpoint=story.checkpoint, keep_state=True, reason=reason)
    below = from_checkpoint(story)
    if copied is not None:
        return replace(below, step=copied.version.step, reason=reason_of(copied, story), copied=copied)
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
    staff = staff_of(planned.plan, before=state.seats)
    reason = "; ".join(part for part in (cause, staff, planned.reason) if part)
    return _assign(state, planned.plan, seats, now, resume=from_checkpoint(state.story), reason=reason)


def _repair(
    state: Settling, mended: Mend, story: Story, seats: tuple[Seat, ...], now: float, *, cause: str
) -> Decision:
    """Give the survivors their parts of the step that broke. They wait in mid-step, so it is done at once."""
    decided = story.decided if mended.ruling.decided is None else mended.ruling.decided
    story = replace(story, generation=story.next_generation, decided=decided)
    assign = assignment_of(mended, generation=story.generation)
    feed: tuple[Command, ...] = () if mended.saves_only else (FeedFrom(step=assign.step),)
    return Decision(
        state=after(state, mended, story=story, seats=seats, now=now),
        commands=(assign, *feed),
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
        outlook=state.story.outlook.with_started([seat.worker for seat in fresh], now),
    )
    names = frozenset(seat.worker for seat in fresh)
    assign = AssignPlan(
        generation=story.generation, plan=plan, step=resume.step, checkpoint=resume.checkpoint,
        keep_state=resume.keep_state,
    )  # fmt: skip
    starts: tuple[Command, ...] = (StartWorkers(seats=fresh),) if fresh else ()
    after = (
        Starting(story=story, seats=seats, plan=plan, since=now, fresh=names)
        if _is_first(state.story)
        else Restoring(story=story, seats=seats, plan=plan, since=now, fresh=names, keeps=resume.keep_state)
    )
    return Decision(state=after, commands=(*starts, assign, FeedFrom(step=resume.step)), reason=reason)


def _is_first(story: Story) -> bool:
    """Has this controller not yet made a generation?"""
    return story.generation % GENERATIONS == 0


def _rewound(story: Story, resume: Resume) -> Story:
    """The story as it stands after `resume.step` steps."""
    if resume.step == story.committed:
        return story
    if resume.copied is not None:
        return story.back_at(resume.step)
    return story.back_to(resume.checkpoint)


def _counted(state: Settling, story: Story, mended: Mend | CannotMend) -> Story:
    """One more recovery, and what it lost; where people have asked to go back it is neither.

    Nor is it where nodes went and took nothing along that the step needs: whoever tries again does not fail again.
    """
    if state.goes_back:
        return replace(story, furthest=story.committed)
    if isinstance(mended, Mend) and not mended.anew and is_of_nodes(state):
        return story
    lost = state.story.committed - story.committed
    rewinds = story.rewinds + (lost > 0)
    return replace(story, recoveries=story.recoveries + 1, rewinds=rewinds, steps_lost=story.steps_lost + lost)


def _without_loss(state: Settling) -> str:
    return "everyone has left its step, as asked" if state.goes_back else "the generation broke, nobody is lost"


def _after(first: tuple[Command, ...], decision: Decision) -> Decision:
    return replace(decision, commands=(*first, *decision.commands))
