"""What may happen in which state, and who decides what is done: one table, (state, event) -> handler.

    a handler   decides
    LATE        only a message of an older generation can come here, to no effect; a current one is a bug
    IGNORED     may come, and means nothing here
    FORBIDDEN   cannot happen: IllegalTransition

The handlers stand by subject: who is there in `control.membership`, steps and saves in `control.stepping`, losses in
`control.recovery`, other plans in `control.asking`, `control.preparing` and `control.moving`, ends in
`control.ending`, what people ask of its course in `control.steering` and `control.going_back`.
One table with its forbidden pairs written out: h11, `_state.py`.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Literal

from raymega.control import (
    asking,
    ending,
    going_back,
    membership,
    moving,
    preparing,
    settling,
    steering,
    stepping,
    taking_over,
)
from raymega.control.decision import Brain, Decision
from raymega.control.events import (
    CheckpointAsked,
    CheckpointFailed,
    CheckpointPublished,
    ControllerTakenOver,
    DisturbAsked,
    DrainAsked,
    Evaluated,
    Event,
    GenerationLeft,
    NodesChanged,
    PauseAsked,
    ResizeAsked,
    ResumeAsked,
    RewindAsked,
    SaveFailed,
    SetAsked,
    ShardsSaved,
    StateMoved,
    StepCommitted,
    StopAsked,
    Tick,
    WorkerBorn,
    WorkerFailed,
    WorkerLost,
    WorkersReady,
)
from raymega.control.granting import with_rates
from raymega.control.restoring import with_copies
from raymega.control.states import (
    Failed,
    Finished,
    Moving,
    Restoring,
    Saving,
    Settling,
    Starting,
    State,
    Stopping,
    Training,
    WaitingForNodes,
)
from raymega.control.validating import with_evaluation
from raymega.errors import RaymegaBug

LATE: Literal["late"] = "late"
IGNORED: Literal["ignored"] = "ignored"
FORBIDDEN: Literal["forbidden"] = "forbidden"

Handler = Callable[[Brain, Any, Any, float], Decision]  # Any: each handler names the states and events of its rows
Row = Handler | Literal["late", "ignored", "forbidden"]
Of = (  # of one generation
    StepCommitted, Evaluated, WorkersReady, GenerationLeft, ShardsSaved, SaveFailed, StateMoved,
)  # fmt: skip


TELLING = ("worker", "generation", "step", "after_step", "committed")  # of an event; the rest may be long


class IllegalTransition(RaymegaBug):
    """An event that cannot happen in this state; facts: state, event."""


def decide(brain: Brain, state: State, event: Event, now: float) -> Decision:
    """What `event` leads to in `state`. Pure: the same arguments give the same decision."""
    row = TABLE[type(state), type(event)]
    if row == FORBIDDEN:
        raise _illegal(state, event)
    if isinstance(event, Of) and event.generation != state.story.generation:
        if event.generation > state.story.generation:
            raise _illegal(state, event)
        return Decision(state=state)  # of an older generation: no effect (law 7)
    if row == LATE:
        raise _illegal(state, event)
    if row == IGNORED:
        return Decision(state=state)
    assert callable(row), "the other kinds of row are dealt with"
    return with_evaluation(with_rates(with_copies(brain, row(brain, state, event, now))))


def _illegal(state: State, event: Event) -> IllegalTransition:
    names, story = (type(event).__name__, type(state).__name__), state.story
    told = {field.name: getattr(event, field.name) for field in fields(event) if field.name in TELLING}
    said = f"({', '.join(f'{name}={value!r}' for name, value in told.items())})" if told else ""
    return IllegalTransition(
        f"{names[0]}{said} cannot happen while {names[1]}(generation={story.generation}, committed={story.committed})",
        state=names[1], event=names[0],
    )  # fmt: skip


_STEERING: dict[type, Row] = {
    PauseAsked: steering.pause_asked,
    ResumeAsked: steering.resume_asked,
    SetAsked: steering.set_asked,
    CheckpointAsked: steering.checkpoint_asked,
    RewindAsked: going_back.rewind_asked,
    DisturbAsked: steering.disturb_asked,
}

_ANYWHERE: dict[type, Row] = {
    **_STEERING,
    NodesChanged: membership.nodes_changed,
    WorkerLost: membership.worker_lost,
    WorkerFailed: membership.worker_failed,
    CheckpointPublished: stepping.checkpoint_published,
    ControllerTakenOver: taking_over.taken_over,
    WorkerBorn: membership.worker_born,
    StateMoved: LATE,
    ResizeAsked: asking.resize_asked,
    DrainAsked: asking.drain_asked,
}

_IN_WAITING: dict[type, Row] = {
    **_ANYWHERE,
    WorkersReady: LATE,
    StepCommitted: IGNORED,  # of the generation that broke: its steps are rewound already
    Evaluated: IGNORED,
    GenerationLeft: IGNORED,
    ShardsSaved: IGNORED,
    SaveFailed: IGNORED,
    CheckpointFailed: IGNORED,
    StateMoved: IGNORED,
    StopAsked: ending.stop_now,
    Tick: membership.begin_if_due,
}

_IN_STARTING: dict[type, Row] = {
    **_ANYWHERE,
    WorkersReady: membership.workers_ready,
    StepCommitted: LATE,
    Evaluated: LATE,
    GenerationLeft: membership.generation_left,
    ShardsSaved: LATE,
    SaveFailed: LATE,
    CheckpointFailed: IGNORED,
    StopAsked: ending.stop_now,
    Tick: membership.starting_takes_time,
}


def and_on(handler: Handler) -> Handler:
    """Decide, and then look whether the next plan can be brought nearer, where the run trains on."""

    def decided(brain: Brain, state: Training, event: Event, now: float) -> Decision:
        decision = handler(brain, state, event, now)
        if brain.moves is None or not isinstance(decision.state, Training):
            return decision
        on = preparing.proceed(brain, decision.state, now, reason=decision.reason)
        return replace(on, commands=(*decision.commands, *on.commands))

    return decided


_IN_STEPS: dict[type, Row] = {
    **_ANYWHERE,
    WorkersReady: LATE,
    StepCommitted: stepping.step_committed,
    Evaluated: stepping.evaluated,
    GenerationLeft: membership.generation_left,
    ShardsSaved: stepping.shards_saved,
    SaveFailed: stepping.save_failed,
    CheckpointFailed: stepping.checkpoint_failed,
    ResizeAsked: asking.refused_at_the_end,
    DrainAsked: asking.refused_at_the_end,
    **dict.fromkeys(_STEERING, asking.refused_at_the_end),
    Tick: stepping.time_passes,
}

_LOOKS_ON = (
    NodesChanged, WorkerBorn, WorkerLost, Evaluated, SaveFailed, CheckpointPublished, CheckpointFailed, Tick,
)  # fmt: skip
_IN_TRAINING: dict[type, Row] = {
    **_IN_STEPS,
    **{event: and_on(row) for event, row in _IN_STEPS.items() if event in _LOOKS_ON and callable(row)},
    **_STEERING,
    ResizeAsked: asking.resize_asked,
    DrainAsked: asking.drain_asked,
    StopAsked: ending.stop_at_boundary,
}

_IN_MOVING: dict[type, Row] = {
    **_ANYWHERE,
    WorkersReady: IGNORED,
    StepCommitted: LATE,
    Evaluated: LATE,
    GenerationLeft: membership.generation_left,
    WorkerFailed: moving.worker_failed,
    ShardsSaved: LATE,
    SaveFailed: LATE,
    CheckpointFailed: IGNORED,
    StateMoved: moving.state_moved,
    StopAsked: ending.stop_soon,
    Tick: moving.time_passes,
}

_IN_SETTLING: dict[type, Row] = {
    **_ANYWHERE,
    WorkersReady: IGNORED,  # it was ready, and broke before this was heard
    StepCommitted: settling.committed_before_the_break,
    Evaluated: settling.evaluated_before_the_break,
    GenerationLeft: membership.generation_left,
    ShardsSaved: settling.saved_before_the_break,
    SaveFailed: IGNORED,
    StateMoved: IGNORED,
    CheckpointPublished: settling.publishing_ended,
    CheckpointFailed: settling.publishing_ended,
    StopAsked: ending.stop_soon,
    Tick: settling.time_passes,
}

_BY_STATE: dict[type, dict[type, Row]] = {
    WaitingForNodes: _IN_WAITING,
    Starting: _IN_STARTING,
    Restoring: {**_IN_STARTING, StopAsked: ending.stop_soon},
    Training: _IN_TRAINING,
    Moving: _IN_MOVING,
    Stopping: {**_IN_STEPS, StopAsked: ending.stop_again},
    Saving: {**_IN_STEPS, StepCommitted: LATE, StopAsked: ending.stop_again},
    Settling: _IN_SETTLING,
    Finished: dict.fromkeys((*_IN_STEPS, StopAsked), FORBIDDEN),
    Failed: dict.fromkeys((*_IN_STEPS, StopAsked), FORBIDDEN),
}

TABLE: dict[tuple[type, type], Row] = {
    (state, event): row for state, rows in _BY_STATE.items() for event, row in rows.items()
}
