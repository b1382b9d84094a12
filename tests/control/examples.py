"""One state of each kind and one event of each kind, in the middle of a run of four workers on two nodes."""

from dataclasses import replace

from raymega.control.broken import Leaver
from raymega.control.changing import Change, MoveUnderway
from raymega.control.commands import (
    AbortGeneration,
    Command,
    Finish,
    StopWorkers,
)
from raymega.control.events import (
    CheckpointFailed,
    CheckpointPublished,
    ControllerTakenOver,
    DrainAsked,
    Evaluated,
    GenerationLeft,
    NodesChanged,
    ResizeAsked,
    RewindAsked,
    SaveFailed,
    ShardsSaved,
    StateMoved,
    StepCommitted,
    StopAsked,
    Tick,
    WorkerFailed,
    WorkerLost,
    WorkersReady,
)
from raymega.control.ladder import Rung
from raymega.control.states import (
    Checkpoint,
    Failed,
    Finished,
    Moving,
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
from raymega.layout.certificate import Fingerprint, StatePart
from raymega.layout.shard_box import Box
from raymega.mesh import Mesh
from raymega.plan.plan import Plan
from raymega.plan.transition import Transition
from tests.control.fake_hands import nodes, plan_for

G = 1_000_002
SEATS = tuple(Seat(worker=f"w{index}", node=f"n{index // 2}", device=index % 2) for index in range(4))
PLAN: Plan = plan_for(SEATS).plan
CKPT = Checkpoint(step=5, uri="mem://5", tokens_total=4000)
STORY = Story(
    generation=G, committed=9, furthest=9, tokens_total=7200, checkpoint=CKPT, next_worker=4, nodes=nodes(2, 2)
)
FULL = SavesUnderway(step=9, since=99.0, tokens_total=7200, saved=frozenset({"w0", "w1", "w2"}))
TRAINING = Training(story=STORY, seats=SEATS, plan=PLAN, granted=10, saves=(SavesUnderway(step=10),))


def leavers(*workers: str, committed: int = 9) -> tuple[Leaver, ...]:
    return tuple(Leaver(worker=worker, committed=committed) for worker in workers)


SMALLER = plan_for(SEATS[:2]).plan
MOVING = Moving(
    story=STORY, seats=SEATS, plan=SMALLER,
    move=MoveUnderway(
        change=Change(
            rung=Rung.FULL_RESHARD, cause="asked for: 2 devices", plan=SMALLER, predicted_s=0.5, predicted_step_s=2.0,
            since=98.0, boundary=9,
        ),
        transition=Transition(old=PLAN, senders=PLAN.living, node_of={seat.worker: seat.node for seat in SEATS}),
        step=9, since=99.0,
    ),
)  # fmt: skip
DONE = replace(STORY, committed=20, furthest=20)
LAST = SavesUnderway(step=20, since=99.0, tokens_total=7200, saved=frozenset({"w0", "w1", "w2"}))
IN: dict[str, State] = {
    "waiting": WaitingForNodes(story=STORY, seats=SEATS, not_before=200.0),
    "starting": Starting(story=STORY, seats=SEATS, plan=PLAN, since=99.0, fresh=frozenset({"w3"})),
    "restoring": Restoring(story=STORY, seats=SEATS, plan=PLAN, since=99.0, fresh=frozenset({"w3"})),
    "training": TRAINING,
    "moving": MOVING,
    "settling": Settling(
        story=STORY, seats=SEATS, plan=PLAN, held=True, lost=(("w3", "SIGKILL"),),
        left=leavers("w0", "w1"),
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
PRINT = Fingerprint(name="layers.0.mlp.up", kind="exp_avg", box=Box.parse("0:4,3:6"), value=2**64 - 1)
PART = StatePart(worker="w0", step=9, skipped=0, position=72, lr=1e-3, updates=9, before=(PRINT,), after=(PRINT,))
MOVED = StateMoved(worker="w0", generation=G, part=PART, bytes_received=40, seconds={"move": 0.1})
RESIZE = ResizeAsked(request=7, mesh=Mesh(dp=1, pp=2, tp=1))
DRAIN = DrainAsked(request=8, node="n1", by_t=130.0, cause="asked by ann")
BACK = RewindAsked(request=9, to=CKPT, newest=CKPT.step)
TAKEN = ControllerTakenOver(epoch=2, silent_s=3.0)
USER, CTRL_C = StopAsked(by="user"), StopAsked(by="interrupt", grace_s=10.0)
END = (AbortGeneration, StopWorkers, Finish)
NONE: tuple[type[Command], ...] = ()
