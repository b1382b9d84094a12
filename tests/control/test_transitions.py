"""Every pair of state and event: what it decides, or why it cannot be."""

from dataclasses import replace

import pytest

from raymega.control.commands import (
    AbortGeneration,
    Answer,
    AssignPlan,
    Command,
    FeedFrom,
    Finish,
    Grant,
    PublishCheckpoint,
    Rewind,
    StartWorkers,
    StopWorkers,
    WithdrawCheckpoints,
    WriteStep,
)
from raymega.control.events import EVENTS, CheckpointFailed, Event, ShardsSaved, WorkerBorn, WorkerFailed
from raymega.control.states import (
    STATES,
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
from raymega.control.transitions import FORBIDDEN, TABLE, IllegalTransition, decide
from raymega.errors import RaymegaBug
from tests.control.examples import (
    BACK,
    CTRL_C,
    DRAIN,
    END,
    ERROR,
    FEWER,
    IN,
    LOSS,
    MOVED,
    NEWER,
    NODES,
    NONE,
    NOT_PUBLISHED,
    READY,
    RESIZE,
    SAVE_FAILED,
    SAVED,
    TAKEN,
    TICK,
    USER,
    G,
    left,
    lost,
    step,
)
from tests.control.fake_hands import brain

ROWS: list[tuple[str, Event, type[State], tuple[type[Command], ...], str]] = [
    ("waiting", NODES, WaitingForNodes, NONE, ""),
    ("waiting", FEWER, WaitingForNodes, (StopWorkers,), "node n1 is gone"),
    ("waiting", lost("w3"), WaitingForNodes, (StopWorkers,), "no part in the plan"),
    ("waiting", lost("w9"), WaitingForNodes, NONE, ""),
    ("waiting", ERROR, Failed, (StopWorkers, Finish), "w0 failed: ValueError"),
    ("waiting", NEWER, WaitingForNodes, NONE, "step 9 is complete"),
    ("waiting", step(10), WaitingForNodes, NONE, ""),
    ("waiting", left("w0"), WaitingForNodes, NONE, ""),
    ("waiting", LOSS, WaitingForNodes, NONE, ""),
    ("waiting", SAVED, WaitingForNodes, NONE, ""),
    ("waiting", SAVE_FAILED, WaitingForNodes, NONE, ""),
    ("waiting", NOT_PUBLISHED, WaitingForNodes, NONE, ""),
    ("waiting", USER, Finished, (StopWorkers, Finish), "step 5 is the newest saved"),
    ("waiting", TICK, WaitingForNodes, NONE, ""),
    ("waiting", TAKEN, WaitingForNodes, NONE, "controller 2 takes over"),
    ("starting", NODES, Starting, NONE, ""),
    ("starting", READY, Training, (Grant,), "is ready in generation"),
    ("starting", lost("w3"), Settling, (AbortGeneration,), "w3 is lost: SIGKILL (node n1)"),
    ("starting", left("w0"), Settling, (AbortGeneration,), "w0 left generation"),
    ("starting", ERROR, Failed, END, "w0 failed"),
    ("starting", NEWER, Starting, NONE, "step 9 is complete"),
    ("starting", NOT_PUBLISHED, Starting, NONE, ""),
    ("starting", USER, Finished, END, "the user asked to stop"),
    ("starting", TICK, Starting, NONE, ""),
    ("starting", TAKEN, Settling, (AbortGeneration,), "controller 2 takes over, 3.0 s after the last decision"),
    ("restoring", FEWER, Settling, (AbortGeneration,), "node n1 is gone"),
    ("restoring", READY, Training, (Grant,), "goes on after step 9 of 20"),
    ("restoring", TAKEN, Settling, (AbortGeneration,), "controller 2 takes over"),
    ("restoring", lost("w0"), Settling, (AbortGeneration,), "the step ends for everyone"),
    ("training", NODES, Training, NONE, ""),
    ("training", FEWER, Settling, (AbortGeneration,), "w2 is lost: node n1 is gone; w3 is lost"),
    ("training", step(10), Training, (WriteStep, Grant), ""),
    ("training", LOSS, Training, NONE, ""),
    ("training", lost("w2"), Settling, (AbortGeneration,), "w2 is lost"),
    ("training", left("w2"), Settling, (AbortGeneration,), "reset by peer"),
    ("training", ERROR, Failed, END, "resumed from the checkpoint of step 5"),
    ("training", ShardsSaved(worker="w0", generation=G, step=10), Training, NONE, ""),
    ("training", SAVE_FAILED, Training, NONE, "step 10 is given up: w3 could not save its part: no space"),
    ("training", NEWER, Training, NONE, "step 9 is complete"),
    ("training", NOT_PUBLISHED, Training, NONE, "checksum of shard 3; training goes on"),
    ("training", USER, Stopping, (Grant,), "all workers stop after step 11"),
    ("training", TICK, Training, NONE, ""),
    ("training", TAKEN, Settling, (AbortGeneration,), "controller 2 takes over"),
    ("settling", NODES, Settling, NONE, ""),
    ("settling", READY, Settling, NONE, ""),
    ("settling", step(10), Settling, (WriteStep,), ""),
    ("settling", LOSS, Settling, NONE, ""),
    ("settling", lost("w3"), Settling, NONE, ""),
    ("settling", lost("w1"), Settling, NONE, "w1 is lost"),
    ("settling", left("w1"), Settling, NONE, ""),
    ("settling", left("w2"), Restoring, (StopWorkers, Rewind, StartWorkers, AssignPlan, FeedFrom), "3 workers stay"),
    ("settling", ERROR, Failed, END, "w0 failed"),
    ("settling", SAVED, Settling, (PublishCheckpoint,), ""),
    ("settling", SAVE_FAILED, Settling, NONE, ""),
    ("settling", NEWER, Settling, NONE, ""),
    ("settling", NOT_PUBLISHED, Settling, NONE, ""),
    ("settling", USER, Settling, NONE, "the user asked to stop: the next step is the last, and saved"),
    ("settling", TICK, Settling, NONE, ""),
    ("settling", TAKEN, Settling, (AbortGeneration,), "those who have not answered are asked again"),
    ("stopping", NODES, Stopping, NONE, ""),
    ("stopping", step(10), Saving, (WriteStep,), "step 10 is committed; it is saved last"),
    ("stopping", LOSS, Stopping, NONE, ""),
    ("stopping", lost("w0"), Settling, (AbortGeneration,), "the step ends for everyone"),
    ("stopping", left("w0"), Settling, (AbortGeneration,), "the step ends for everyone"),
    ("stopping", ERROR, Failed, END, "w0 failed"),
    ("stopping", ShardsSaved(worker="w0", generation=G, step=10), Stopping, NONE, ""),
    ("stopping", SAVE_FAILED, Stopping, NONE, "given up"),
    ("stopping", NEWER, Stopping, NONE, "complete"),
    ("stopping", NOT_PUBLISHED, Stopping, NONE, "given up"),
    ("stopping", CTRL_C, Stopping, NONE, ""),
    ("stopping", TICK, Stopping, NONE, ""),
    ("stopping", TAKEN, Settling, (AbortGeneration,), "controller 2 takes over"),
    ("saving", NODES, Saving, NONE, ""),
    ("saving", lost("w3"), Settling, (AbortGeneration,), "the step ends for everyone"),
    ("saving", left("w0", 20), Settling, (AbortGeneration,), "left"),
    ("saving", ERROR, Failed, END, "w0 failed"),
    ("saving", LOSS, Saving, NONE, ""),
    ("saving", ShardsSaved(worker="w3", generation=G, step=20), Saving, (PublishCheckpoint,), "all shards of step 20"),
    ("saving", replace(SAVE_FAILED, step=20), Failed, END, "the checkpoint of step 20 is given up"),
    ("saving", NEWER, Saving, NONE, "complete"),
    ("saving", replace(NEWER, step=20), Finished, END, "all 20 steps are committed and saved"),
    ("saving", CheckpointFailed(step=20, reason="torn"), Failed, END, "torn"),
    ("saving", USER, Saving, NONE, "the last save is underway"),
    ("saving", TICK, Saving, NONE, ""),
    ("saving", TAKEN, Saving, NONE, "the last save goes on"),
    ("training", WorkerBorn(worker="w4"), Training, NONE, ""),
    ("starting", RESIZE, Starting, (Answer,), "refused: the state of this run cannot be moved"),
    ("stopping", DRAIN, Stopping, (Answer,), "refused: the run is about to end"),
    ("training", BACK, Settling, (Answer, WithdrawCheckpoints, AbortGeneration), "back to the checkpoint of step 5"),
    ("training", left("w9"), Training, NONE, ""),
    ("settling", left("w9"), Settling, NONE, ""),
    ("moving", BACK, Moving, (Answer,), "refused: nobody trains at this moment"),
    ("settling", MOVED, Settling, NONE, ""),
    ("moving", MOVED, Moving, NONE, ""),
    ("moving", READY, Moving, NONE, ""),
    ("moving", TICK, Moving, NONE, ""),
    ("moving", NODES, Moving, NONE, ""),
    ("moving", WorkerBorn(worker="w4"), Moving, NONE, ""),
    ("moving", lost("w9"), Moving, NONE, ""),
    ("moving", lost("w1"), Settling, (AbortGeneration,), "the step ends for everyone"),
    ("moving", lost("w3"), Settling, (AbortGeneration,), "the step ends for everyone"),
    ("moving", left("w0"), Settling, (AbortGeneration,), "reset by peer"),
    ("moving", ERROR, Settling, (AbortGeneration,), "w0 failed: ValueError: x; the step ends for everyone"),
    ("moving", replace(ERROR, worker="controller"), Failed, END, "controller failed"),
    ("moving", NEWER, Moving, NONE, "step 9 is complete"),
    ("moving", NOT_PUBLISHED, Moving, NONE, ""),
    ("moving", USER, Moving, NONE, "the next step is the last, and saved"),
    ("moving", replace(CTRL_C, grace_s=0.0), Finished, END, "step 5 is the newest saved"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "event", "after", "commands", "says"), ROWS)
def test_a_row_of_the_table(state, event, after, commands, says):
    decision = decide(brain(), IN[state], event, 100.0)
    assert type(decision.state) is after
    assert tuple(type(command) for command in decision.commands) == commands
    assert says in decision.reason
    assert bool(says) == bool(decision.reason), "a reason is given where something happened, and only there"


def test_the_table_has_every_pair():
    assert set(TABLE) == {(state, event) for state in STATES for event in EVENTS}


EXAMPLES = {type(event): event for _, event, *_ in ROWS}
OUT_OF_ORDER = [
    ("waiting", READY), ("starting", step(10)), ("starting", LOSS), ("starting", SAVED), ("restoring", SAVE_FAILED),
    ("training", READY), ("stopping", READY), ("saving", READY), ("saving", step(21)), ("training", step(12)),
]  # fmt: skip


@pytest.mark.parametrize(("state", "event"), OUT_OF_ORDER)
def test_what_cannot_happen_is_a_bug_and_says_where(state, event):
    with pytest.raises(RaymegaBug, match=r"cannot happen while|was reported as committed after"):
        decide(brain(), IN[state], event, 100.0)


@pytest.mark.parametrize("event", EXAMPLES.values(), ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("state", ["finished", "failed"])
def test_nothing_happens_to_a_run_that_is_over(state, event):
    assert TABLE[type(IN[state]), type(event)] == FORBIDDEN
    with pytest.raises(
        IllegalTransition, match=rf"{type(event).__name__}(\(.*\))? cannot happen while {type(IN[state]).__name__}\("
    ) as told:
        decide(brain(), IN[state], event, 100.0)
    assert len(str(told.value)) < 200, "whatever it carries"


@pytest.mark.parametrize(
    "state", ["waiting", "starting", "restoring", "training", "moving", "settling", "stopping", "saving"]
)
@pytest.mark.parametrize("event", [event for event in EXAMPLES.values() if "generation" in type(event).__slots__])
def test_an_older_generation_has_no_effect(state, event):
    if isinstance(event, WorkerFailed):
        return  # an error that trying again cannot mend is none of its generation
    decision = decide(brain(), IN[state], replace(event, generation=G - 1), 100.0)
    assert (decision.state, decision.commands) == (IN[state], ())


@pytest.mark.parametrize("state", ["starting", "training", "settling"])
def test_a_generation_that_was_never_made_is_a_bug(state):
    with pytest.raises(IllegalTransition):
        decide(brain(), IN[state], replace(left("w0"), generation=G + 1), 100.0)
