"""Every pair of state and event: what it decides, or why it cannot be."""

from dataclasses import replace

import pytest

from raymega.control.commands import (
    AbortGeneration,
    AssignPlan,
    Command,
    Evaluate,
    FeedFrom,
    Finish,
    Grant,
    PublishCheckpoint,
    Rewind,
    StartWorkers,
    StopWorkers,
    WriteStep,
)
from raymega.control.events import (
    EVENTS,
    CheckpointFailed,
    CheckpointPublished,
    Evaluated,
    Event,
    GenerationLeft,
    NodesChanged,
    SaveFailed,
    ShardsSaved,
    StepCommitted,
    StopAsked,
    Tick,
    WorkerFailed,
    WorkerLost,
    WorkersReady,
)
from raymega.control.states import (
    STATES,
    Checkpoint,
    Failed,
    Finished,
    Restoring,
    SavesUnderway,
    Saving,
    Seat,
    Settling,
    Starting,
    State,
    Stop,
    Stopping,
    Story,
    Training,
    WaitingForNodes,
)
from raymega.control.transitions import FORBIDDEN, TABLE, IllegalTransition, decide
from raymega.errors import RaymegaBug
from raymega.plan.plan import Plan
from tests.control.fake_hands import brain, nodes, plan_for

G = 1_000_002
SEATS = tuple(Seat(worker=f"w{index}", node=f"n{index // 2}", device=index % 2) for index in range(4))
PLAN: Plan = plan_for(SEATS).plan
CKPT = Checkpoint(step=5, uri="mem://5", tokens_total=4000)
STORY = Story(
    generation=G, committed=9, furthest=9, tokens_total=7200, checkpoint=CKPT, next_worker=4, nodes=nodes(2, 2)
)
FULL = SavesUnderway(step=9, since=99.0, tokens_total=7200, saved=frozenset({"w0", "w1", "w2"}))
TRAINING = Training(story=STORY, seats=SEATS, plan=PLAN, granted=10, saves=(SavesUnderway(step=10),))
DONE = replace(STORY, committed=20, furthest=20)
LAST = SavesUnderway(step=20, since=99.0, tokens_total=7200, saved=frozenset({"w0", "w1", "w2"}))
IN: dict[str, State] = {
    "waiting": WaitingForNodes(story=STORY, seats=SEATS, not_before=200.0),
    "starting": Starting(story=STORY, seats=SEATS, plan=PLAN, since=99.0, fresh=frozenset({"w3"})),
    "restoring": Restoring(story=STORY, seats=SEATS, plan=PLAN, since=99.0, fresh=frozenset({"w3"})),
    "training": TRAINING,
    "settling": Settling(
        story=STORY, seats=SEATS, plan=PLAN, held=True, lost=(("w3", "SIGKILL"),), left=(("w0", 9), ("w1", 9)),
        saves=(FULL,), since=99.0, until=120.0,
    ),
    "stopping": Stopping(training=TRAINING, stop=Stop(by="terminate", reason="SIGTERM", by_t=150.0)),
    "saving": Saving(training=replace(TRAINING, story=DONE, granted=20, saves=(LAST,)), stop=None, since=99.0),
    "finished": Finished(story=DONE, exit_code=0, reason="done"),
    "failed": Failed(story=STORY, exit_code=4, reason="lost"),
}  # fmt: skip


def step(number: int, generation: int = G) -> StepCommitted:
    return StepCommitted(
        generation=generation, step=number, loss=6.0, grad_norm=1.0, lr=1e-3, tokens=800, skipped=False, step_s=1.0,
        t=100.0,
    )  # fmt: skip


def lost(worker: str, **more: bool) -> WorkerLost:
    return WorkerLost(worker=worker, node="n1", cause="SIGKILL", **more)


def left(worker: str, committed: int = 9) -> GenerationLeft:
    return GenerationLeft(worker=worker, generation=G, reason="reset by peer", committed=committed)


NODES, FEWER = NodesChanged(nodes=nodes(2, 2)), NodesChanged(nodes=nodes(2))
READY, TICK = WorkersReady(generation=G), Tick()
ERROR = WorkerFailed(worker="w0", generation=G, error="ValueError: x", exit_code=1)
SAVED = ShardsSaved(worker="w3", generation=G, step=9)
SAVE_FAILED = SaveFailed(worker="w3", generation=G, step=10, reason="no space left")
NEWER = CheckpointPublished(step=9, uri="mem://9", tokens_total=7200)
NOT_PUBLISHED = CheckpointFailed(step=10, reason="checksum of shard 3")
LOSS = Evaluated(generation=G, after_step=10, loss=5.0, tokens=1)
USER, CTRL_C = StopAsked(by="user"), StopAsked(by="interrupt", grace_s=10.0)
END = (AbortGeneration, StopWorkers, Finish)
NONE: tuple[type[Command], ...] = ()

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
    ("starting", NODES, Starting, NONE, ""),
    ("starting", READY, Training, (Grant,), "is ready in generation"),
    ("starting", lost("w3"), Settling, (AbortGeneration,), "w3 is lost: SIGKILL (node n1)"),
    ("starting", left("w0"), Settling, (AbortGeneration,), "w0 left generation"),
    ("starting", ERROR, Failed, END, "w0 failed"),
    ("starting", NEWER, Starting, NONE, "step 9 is complete"),
    ("starting", NOT_PUBLISHED, Starting, NONE, ""),
    ("starting", USER, Finished, END, "the user asked to stop"),
    ("starting", TICK, Starting, NONE, ""),
    ("restoring", FEWER, Settling, (AbortGeneration,), "node n1 is gone"),
    ("restoring", READY, Training, (Grant,), "goes on after step 9 of 20"),
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
    ("settling", USER, Finished, END, "step 5 is the newest saved"),
    ("settling", TICK, Settling, NONE, ""),
    ("stopping", NODES, Stopping, NONE, ""),
    ("stopping", step(10), Saving, (WriteStep,), "step 10 is committed; it is saved last"),
    ("stopping", LOSS, Stopping, NONE, ""),
    ("stopping", lost("w0"), Finished, END, "without a complete save"),
    ("stopping", left("w0"), Finished, END, "SIGTERM: ended without a complete save"),
    ("stopping", ERROR, Failed, END, "w0 failed"),
    ("stopping", ShardsSaved(worker="w0", generation=G, step=10), Stopping, NONE, ""),
    ("stopping", SAVE_FAILED, Stopping, NONE, "given up"),
    ("stopping", NEWER, Stopping, NONE, "complete"),
    ("stopping", NOT_PUBLISHED, Stopping, NONE, "given up"),
    ("stopping", CTRL_C, Stopping, NONE, ""),
    ("stopping", TICK, Stopping, NONE, ""),
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
        IllegalTransition, match=f"{type(event).__name__} cannot happen while {type(IN[state]).__name__}"
    ):
        decide(brain(), IN[state], event, 100.0)


@pytest.mark.parametrize("state", ["waiting", "starting", "restoring", "training", "settling", "stopping", "saving"])
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


def test_an_evaluation_is_ordered_with_the_leave_that_reaches_it():
    decision = decide(brain(eval_every=4), TRAINING, step(10), 100.0)
    assert Evaluate(generation=G, after_step=12) in decision.commands
    assert Grant(generation=G, until=12, save_at=()) in decision.commands


def test_after_the_back_off_the_next_generation_is_made():
    decision = decide(brain(), IN["waiting"], TICK, 201.0)
    assert [type(command) for command in decision.commands] == [AssignPlan, FeedFrom]


def test_a_generation_that_is_not_ready_in_time_is_broken():
    decision = decide(brain(), IN["starting"], TICK, 99.0 + 31.0)
    assert isinstance(decision.state, Settling)
    assert "was not ready after 31 s" in decision.reason


def test_members_of_a_broken_generation_that_say_nothing_count_as_lost():
    decision = decide(brain(), IN["settling"], TICK, 121.0)
    assert isinstance(decision.state, Restoring)
    assert "w2: said nothing for 22.0 s" in decision.reason
    assert StopWorkers(workers=("w2", "w3")) in decision.commands


def test_a_checkpoint_that_is_being_published_is_waited_for_before_going_back():
    publishing = replace(
        IN["settling"], saves=(replace(FULL, publishing=True),), left=(("w0", 9), ("w1", 9), ("w2", 9))
    )
    assert decide(brain(), publishing, TICK, 100.0).state == publishing
    decision = decide(brain(), publishing, NEWER, 100.0)
    assert Rewind(step=9) not in decision.commands, "nothing is lost"
    assert next(c for c in decision.commands if isinstance(c, AssignPlan)).checkpoint.step == 9


def test_a_checkpoint_of_steps_that_are_rewound_is_not_taken_up():
    decision = decide(brain(), IN["training"], replace(NEWER, step=12), 100.0)
    assert decision.state.story.checkpoint == CKPT


def test_a_save_that_takes_too_long_is_given_up_and_names_who_is_late():
    slow = replace(TRAINING, saves=(FULL,))
    decision = decide(brain(), slow, TICK, 99.0 + 61.0)
    assert "not complete after 61 s, waiting for w3" in decision.reason
    assert decision.state.saves == ()


def test_a_node_that_is_known_to_be_gone_gets_no_fresh_worker():
    broken = decide(brain(), IN["settling"], lost("w2", node_gone=True), 100.0)
    started = [seat.node for c in broken.commands if isinstance(c, StartWorkers) for seat in c.seats]
    assert isinstance(broken.state, Restoring)
    assert (started, broken.state.plan.mesh.dp) == ([], 1)


def test_a_node_on_which_a_fresh_worker_did_not_come_to_life_is_avoided():
    decision = decide(brain(), IN["restoring"], lost("w3"), 100.0)
    assert decision.state.story.avoided == {"n1"}
    decision = decide(brain(), IN["restoring"], replace(lost("w0"), node="n0"), 100.0)
    assert decision.state.story.avoided == frozenset()


def test_a_loss_while_the_last_manifest_is_written_does_not_matter():
    saving = IN["saving"]
    publishing = replace(saving.training, saves=(replace(LAST, saved=frozenset(PLAN.workers), publishing=True),))
    decision = decide(brain(), replace(saving, training=publishing), lost("w0"), 100.0)
    assert (type(decision.state), decision.commands) == (Saving, ())
