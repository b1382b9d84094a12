"""Who is there: nodes that come and go, workers that are ready, lost, or have left their generation.

What a loss leads to is decided in `control.recovery`; here it is decided whether it matters in the present state:
a spare's loss does not, nor one after the last checkpoint has all its parts.
"""

from dataclasses import replace

from raymega.config.fault import are, counted
from raymega.control.broken import Leaver, Sign
from raymega.control.commands import StopWorkers
from raymega.control.decision import Brain, Decision
from raymega.control.ending import cut_short, end, finish, give_up, is_overdue, is_saved, save_last, stop_after
from raymega.control.events import (
    GenerationLeft,
    NodesChanged,
    Tick,
    WorkerBorn,
    WorkerFailed,
    WorkerLost,
    WorkersReady,
)
from raymega.control.granting import grant_next
from raymega.control.preparing import proceed
from raymega.control.recovery import begin, break_generation, settle
from raymega.control.states import (
    Moving,
    NodeDevices,
    Restoring,
    Saving,
    Settling,
    Starting,
    State,
    Stopping,
    Story,
    Training,
    WaitingForNodes,
    members_of,
    seats_of,
    with_story,
)
from raymega.metrics import generation_words
from raymega.plan.plan import WorkerId

Live = WaitingForNodes | Starting | Restoring | Training | Moving | Stopping | Saving | Settling


def nodes_changed(brain: Brain, state: Live, event: NodesChanged, now: float) -> Decision:
    """Remember what there is to plan with; workers on a node that is gone are lost."""
    known = with_story(state, _with_nodes(state.story, event.nodes, now))
    names = {node.node for node in event.nodes}
    gone = tuple((seat.worker, f"node {seat.node} is gone") for seat in seats_of(known) if seat.node not in names)
    if gone:
        return lose(brain, known, gone, now)
    if isinstance(known, WaitingForNodes):
        return begin_if_due(brain, known, Tick(), now)
    return Decision(state=known)


def begin_if_due(brain: Brain, state: WaitingForNodes, event: Tick, now: float) -> Decision:
    """Make the next generation, once nodes are known and the back-off has passed."""
    story, steps = state.story, brain.rules.steps
    if story.committed >= steps:
        done = f"{counted(story.committed, noun='step')} {are(story.committed)} committed and saved"
        reason = f"nothing to do: {done}, training.steps is {steps}"
        return end(state, exit_code=0, reason=reason, resumable=False)
    if not story.nodes or now < state.not_before:
        return Decision(state=state)
    return begin(brain, state, now)


def worker_lost(brain: Brain, state: Live, event: WorkerLost, now: float) -> Decision:
    """Processes are gone; unknown workers (fenced earlier) do not matter."""
    seated = {seat.worker for seat in seats_of(state)}
    lost = [said for said in (event, *event.also) if said.worker in seated]
    if not lost:
        return Decision(state=state)
    avoided = {said.node for said in lost if _is_to_be_avoided(state, said)}
    if avoided:
        state = with_story(state, replace(state.story, avoided=state.story.avoided | avoided))
    return lose(brain, state, tuple((said.worker, _cause(said)) for said in lost), now, silent_s=event.silent_s)


def _is_to_be_avoided(state: Live, said: WorkerLost) -> bool:
    """Is its node gone, or did it not come to life there?"""
    starting = isinstance(state, Starting | Restoring) and said.worker in state.fresh
    unborn = starting or not state.story.outlook.is_born(said.worker)
    return (unborn and not said.absent) or said.node_gone


def _cause(said: WorkerLost) -> str:
    cause = f"{said.cause} (node {said.node})"
    if said.unsent_norm > 0:
        cause += f", and with it gradients that it had not sent yet, of norm {said.unsent_norm:.3g}"
    return cause


def lose(
    brain: Brain, state: State, lost: tuple[tuple[WorkerId, str], ...], now: float, *, silent_s: float = 0.0
) -> Decision:
    """Take `lost`, workers with the cause, out of the run."""
    gone, told = {worker for worker, _ in lost}, "; ".join(f"{worker} is lost: {cause}" for worker, cause in lost)
    state = with_story(state, replace(state.story, outlook=state.story.outlook.without(gone, now)))
    if not gone & set(members_of(state)):
        fence = StopWorkers(workers=tuple(sorted(gone)))
        return Decision(state=_without(state, gone), commands=(fence,), reason=f"{told}; it had no part in the plan")
    match state:
        case Saving() if is_saved(state):
            return finish(brain, state)
        case Saving() if _is_publishing(state):
            return Decision(state=state, reason=f"{told}; every part of the last checkpoint is saved")
        case Settling():
            known = replace(state, detect_s=max(state.detect_s, state.since - (now - silent_s)))
            return _lose_more(brain, known, lost, told, now)
        case Starting() | Restoring() | Training() | Stopping() | Saving() | Moving():
            return break_generation(brain, state, Sign(reason=told, lost=lost, silent_s=silent_s), now)
    raise AssertionError("without a plan nobody is in it")


def _lose_more(
    brain: Brain, state: Settling, lost: tuple[tuple[WorkerId, str], ...], told: str, now: float
) -> Decision:
    """Add to those who are lost; one that had left alive is not alive any more."""
    more = tuple((worker, cause) for worker, cause in lost if worker not in dict(state.lost))
    left = tuple(said for said in state.left if said.worker not in dict(more))
    settled = settle(brain, replace(state, lost=(*state.lost, *more), left=left), now)
    return settled if settled.reason or not more else replace(settled, reason=told)


def generation_left(brain: Brain, state: Live, event: GenerationLeft, now: float) -> Decision:
    """A worker is out of its generation, alive: the first such sign breaks the generation, the others are answers.

    Whoever has no part in it any more, as after a move of state, is free to go.
    """
    told = f"{event.worker} left {generation_words(event.generation)}: {event.reason}"
    members = frozenset(members_of(state))
    answer = tuple(_leaver(said) for said in (event, *event.also) if said.worker in members)
    if not answer:
        return Decision(state=state)
    match state:
        case Settling():
            known = {said.worker for said in state.left} | {worker for worker, _ in state.lost}
            fresh = tuple(said for said in answer if said.worker not in known)
            return settle(brain, replace(state, left=state.left + fresh) if fresh else state, now)
        case Saving() if is_saved(state):
            return finish(brain, state)
        case Saving() if _is_publishing(state):
            return Decision(state=state)
        case Starting() | Restoring() | Training() | Stopping() | Saving() | Moving():
            return break_generation(brain, state, Sign(reason=told, left=answer), now)
    raise AssertionError("without a plan no generation is current")


def workers_ready(brain: Brain, state: Starting | Restoring, event: WorkersReady, now: float) -> Decision:
    """Every worker of the plan is in place: train on. After a break, what else is due is weighed while they do so."""
    story, plan = state.story, state.plan
    outlook = story.outlook.with_born(plan.living)
    repair = state.repair if isinstance(state, Restoring) else None
    if repair is not None:
        outlook = replace(outlook, prices=outlook.prices.regrouped(now - repair.since))
    training = Training(
        story=replace(story, outlook=outlook),
        seats=state.seats,
        plan=plan,
        granted=story.committed,
        repair=None if repair is None else replace(repair, ready_at=now),
    )
    if isinstance(state, Restoring) and state.saves_only:
        return save_last(training, state.stop, now)
    if isinstance(state, Restoring) and state.stop is not None:
        return stop_after(brain, training, state.stop)
    ready = f"{plan.mesh} is ready in {generation_words(story.generation)}; training goes on after step"
    reason = f"{ready} {story.committed} of {brain.rules.steps}"
    if isinstance(state, Restoring):
        training, granted = grant_next(brain.rules, training)
        return Decision(state=training, commands=granted, reason=reason)
    return proceed(brain, training, now, reason=reason)


def worker_born(brain: Brain, state: Live, event: WorkerBorn, now: float) -> Decision:
    """Processes are up; how long that took is what the next one will take."""
    outlook = state.story.outlook.with_born((event.worker, *event.also), now)
    return Decision(state=with_story(state, replace(state.story, outlook=outlook)))


def worker_failed(brain: Brain, state: Live, event: WorkerFailed, now: float) -> Decision:
    """Trying again would meet the same error: end the run, and show where it came from."""
    reason = f"{event.worker} failed: {event.error}"
    return give_up(state, exit_code=event.exit_code, reason=reason, details=event.traceback)


def starting_takes_time(brain: Brain, state: Starting | Restoring, event: Tick, now: float) -> Decision:
    """A generation that is not ready in time is broken, and tried again."""
    if isinstance(state, Restoring) and is_overdue(state.stop, now):
        return cut_short(state, "the grace is used up")
    waited_s = now - state.since
    if waited_s <= brain.rules.start_timeout_s:
        return Decision(state=state)
    sign = Sign(reason=f"{generation_words(state.story.generation)} was not ready after {waited_s:.0f} s")
    return break_generation(brain, state, sign, now)


def _leaver(event: GenerationLeft) -> Leaver:
    return Leaver(
        worker=event.worker,
        committed=event.committed,
        decided_in=event.decided_in,
        decided=event.decided,
        work=event.work,
        kept=event.kept,
        short_of_memory=event.short_of_memory,
    )


def _with_nodes(story: Story, nodes: tuple[NodeDevices, ...], now: float) -> Story:
    here = {node.node for node in nodes}
    outlook = story.outlook.with_nodes((node.node for node in story.nodes), here, now)
    return replace(story, nodes=nodes, avoided=story.avoided & here, outlook=outlook)


def _is_publishing(state: Saving) -> bool:
    """Is every part of the last checkpoint saved, and nothing more needed of the workers?"""
    training = state.training
    last = [save for save in training.saves if save.step == training.story.committed]
    return training.story.unwritten is None and any(save.publishing for save in last)


def _without(state: State, gone: set[WorkerId]) -> State:
    """The state without the seats of spares that are gone."""
    seats = tuple(seat for seat in seats_of(state) if seat.worker not in gone)
    match state:
        case Stopping() | Saving():
            return replace(state, training=replace(state.training, seats=seats))
        case WaitingForNodes() | Starting() | Restoring() | Training() | Moving() | Settling():
            return replace(state, seats=seats)
        case _:
            return state
