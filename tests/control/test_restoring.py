"""The only holder of a stage is lost: the brain goes on from copies, or from the checkpoint where these will not do."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from raymega.control.arbitration import Decided, Version
from raymega.control.codec import event_from_json, event_to_json
from raymega.control.commands import AssignPlan, Command, Rewind, StartWorkers, WriteTransition
from raymega.control.decision import Brain
from raymega.control.events import (
    Event,
    GenerationLeft,
    NodesChanged,
    ShardsSaved,
    StateMoved,
    StepCommitted,
    Tick,
    WorkerLost,
    WorkersReady,
)
from raymega.control.invariants import validate_state
from raymega.control.ladder import Rung
from raymega.control.states import Checkpoint, Moving, NodeDevices, Restoring, State, Training, first_state
from raymega.control.transitions import decide
from raymega.layout.certificate import StatePart
from raymega.layout.copies import CopyRoute, Home, Keeping, Kept
from raymega.plan.plan import Plan
from tests.control.fake_hands import moving_brain

NODES = tuple(NodeDevices(node=f"n{i}", devices=1, labels=(("ray.io/market-type", f"m{i}"),)) for i in range(3))
G = 1_000_001


def crosswise(plan: Plan, homes: Mapping[str, Home]) -> Keeping:
    """Each keeps the state of the next."""
    living = plan.living
    assert {homes[worker].labels["ray.io/market-type"] for worker in living} <= {"m0", "m1", "m2"}
    routes = (CopyRoute(owner=a, holder=b) for a, b in zip(living, (*living[1:], living[0]), strict=True))
    return Keeping(routes=tuple(routes), elements={}, reason="each keeps the state of the next")


def decided_at(step: int, generation: int = G) -> Decided:
    return Decided(version=Version(step=step, generation=generation), facts=bytes([step]))


@dataclass(kw_only=True)
class Story:
    """A run of dp=1 pp=2 on two of `num_nodes` nodes, told event by event."""

    num_nodes: int = 2
    steps: int = 20
    commands: list[Command] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.brain: Brain = replace(moving_brain(steps=self.steps, save_every=0), copies_for=crosswise)
        self.state: State = first_state(epoch=1)
        self.tell(NodesChanged(nodes=NODES[: self.num_nodes]))
        self.tell(WorkersReady(generation=G))

    def tell(self, *events: Event) -> None:
        for event in events:
            self.now += 0.01
            decision = decide(self.brain, self.state, event_from_json(event_to_json(event)), self.now)
            validate_state(decision.state, self.brain.rules)
            self.state, self.commands = decision.state, list(decision.commands)

    def commit(self, *steps: int) -> None:
        for step in steps:
            generation = self.state.story.generation
            self.tell(
                StepCommitted(
                    generation=generation, step=step, loss=5.0, grad_norm=1.0, lr=1e-3, tokens=100 + step,
                    skipped=False, step_s=0.5, t=self.now, decided=decided_at(step, generation),
                )
            )  # fmt: skip

    def lose(self, worker: str) -> None:
        self.tell(WorkerLost(worker=worker, node="n1", cause="SIGKILL"))

    def leave(self, worker: str, *, committed: int, kept: tuple[tuple[str, int], ...], decided_in: int = G) -> None:
        copies = tuple(Kept(owner=owner, step=step, generation=G) for owner, step in kept)
        self.tell(
            GenerationLeft(
                worker=worker, generation=self.state.story.generation, reason="told to", committed=committed,
                decided_in=decided_in, kept=copies,
            )
        )  # fmt: skip

    def moved(self, worker: str, *, step: int) -> None:
        part = StatePart(worker=worker, step=step, skipped=0, position=0, lr=0.0, updates=step, before=(), after=())
        self.tell(StateMoved(worker=worker, generation=self.state.story.generation, part=part, bytes_received=10))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.tell(Tick())

    def told(self, kind: type) -> list:
        return [command for command in self.commands if isinstance(command, kind)]


def lost_at(committed: int, *, kept: tuple[tuple[str, int], ...], told: int | None = None, **fields: int) -> Story:
    """`told` steps are heard of, w1 dies, and w0 leaves at `committed`."""
    run = Story(**fields)
    run.commit(*range(1, (committed if told is None else told) + 1))
    run.lose("w1")
    run.leave("w0", committed=committed, kept=kept)
    return run


def test_every_plan_comes_with_who_keeps_whose_state():
    run = Story()
    decision = decide(run.brain, first_state(epoch=1), NodesChanged(nodes=NODES[:2]), 1.0)
    (assign,) = (command for command in decision.commands if isinstance(command, AssignPlan))
    assert assign.copies == (CopyRoute(owner="w0", holder="w1"), CopyRoute(owner="w1", holder="w0"))


def test_a_copy_of_the_newest_step_costs_no_step():
    run = lost_at(7, kept=(("w1", 7), ("w1", 6)))
    (assign,) = run.told(AssignPlan)
    assert isinstance(run.state, Moving)
    assert run.state.move.change.rung is Rung.PEER_COPY
    assert assign.move.copies == {"w1": "w0"}
    assert (assign.step, assign.move.version, assign.settle) == (7, (7, G), decided_at(7))
    assert run.told(Rewind) == []
    assert run.state.story.steps_lost == 0


def test_an_older_copy_takes_all_back_to_its_step():
    run = lost_at(7, kept=(("w1", 5), ("w1", 4), ("w0", 5), ("w0", 7)))
    (assign,) = run.told(AssignPlan)
    assert (assign.step, assign.move.version, assign.settle) == (5, (5, G), None)
    assert run.told(Rewind) == [Rewind(step=5)]
    story = run.state.story
    assert (story.committed, story.steps_lost, story.tokens_total) == (5, 2, sum(range(101, 106)))


def test_a_free_device_gets_a_worker_for_what_was_lost():
    run = lost_at(7, kept=(("w1", 7),), num_nodes=3)
    (assign,), (start,) = run.told(AssignPlan), run.told(StartWorkers)
    assert assign.plan.living == ("w0", start.seats[0].worker)
    run.moved("w0", step=7)
    run.moved(start.seats[0].worker, step=7)
    assert isinstance(run.state, Training)
    assert run.state.story.committed == 7


def test_the_run_goes_on_once_the_state_is_certified():
    run = lost_at(7, kept=(("w1", 6), ("w0", 6)))
    run.moved("w0", step=6)
    run.moved("w2", step=6)
    (written,) = run.told(WriteTransition)
    assert written.certified
    assert isinstance(run.state, Training)
    run.commit(7, 8)
    assert run.state.story.recoveries == 0
    assert run.state.story.tokens_total == sum(range(101, 109))


def test_copies_that_are_refused_are_not_tried_again():
    run = lost_at(7, kept=(("w1", 7),))
    run.moved("w0", step=7)
    run.moved("w2", step=6)  # which is what the fake certificate refuses
    run.leave("w0", committed=7, kept=(("w1", 7),))
    run.leave("w2", committed=6, kept=())
    run.wait(1.0)
    (assign,) = run.told(AssignPlan)
    assert isinstance(run.state, Restoring)
    assert (assign.move, assign.checkpoint, assign.step) == (None, None, 0)


def test_who_dies_in_the_attempt_is_no_reason_against_another():
    run = lost_at(7, kept=(("w1", 7),), num_nodes=3)
    (start,) = run.told(StartWorkers)
    run.tell(WorkerLost(worker=start.seats[0].worker, node=start.seats[0].node, cause="SIGKILL"))
    run.leave("w0", committed=7, kept=(("w1", 7),))
    (assign,) = run.told(AssignPlan)
    assert assign.move.version == (7, G)


def test_a_newer_checkpoint_is_better_than_older_copies():
    run = Story()
    run.commit(*range(1, 8))
    run.state = replace(run.state, story=replace(run.state.story, checkpoint=Checkpoint(step=6, uri="mem://6")))
    run.lose("w1")
    run.leave("w0", committed=7, kept=(("w1", 5), ("w0", 5)))
    (assign,) = run.told(AssignPlan)
    assert (assign.move, assign.step) == (None, 6)


def test_without_copies_the_checkpoint_is_what_is_left():
    run = lost_at(7, kept=())
    (assign,) = run.told(AssignPlan)
    assert (assign.move, assign.step) == (None, 0)


def test_a_step_that_is_decided_and_unheard_of_is_done_again():
    run = lost_at(8, told=7, kept=(("w1", 8), ("w1", 7), ("w0", 7)))
    assert run.state.story.committed == 7
    assert run.told(AssignPlan)[0].move.version == (7, G)
    assert run.told(ShardsSaved) == []


def test_a_restoring_that_takes_too_long_is_given_up():
    run = lost_at(7, kept=(("w1", 7),))
    run.wait(31.0)
    run.leave("w0", committed=7, kept=(("w1", 7),))
    run.leave("w2", committed=-1, kept=())
    run.wait(1.0)
    assert run.told(AssignPlan)[0].move is None
