"""Whatever goes wrong, in whatever order it is heard of: the invariants hold and the run ends once, truthfully."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.control.commands import Answer, AssignPlan, Finish, Grant
from raymega.control.events import (
    CheckpointAsked,
    DrainAsked,
    NodesChanged,
    PauseAsked,
    ResizeAsked,
    ResumeAsked,
    RewindAsked,
    SetAsked,
    StopAsked,
)
from raymega.control.invariants import validate_state
from raymega.control.loop import Turn, run
from raymega.control.states import Checkpoint, Failed, Finished, Settling, first_state, plan_of, seats_of
from raymega.mesh import Mesh
from tests.control.fake_hands import FakeHands, brain, lacks_loss, moving_brain, nodes

STEPS = st.integers(1, 20)
STOPS = st.builds(
    StopAsked,
    by=st.sampled_from(["user", "interrupt", "terminate", "hangup", "client_gone", "deadline"]),
    grace_s=st.sampled_from([None, 0.0, 0.2, 5.0]),
)
CLUSTERS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda devices: NodesChanged(nodes=nodes(*devices)))
MESHES = st.builds(Mesh, dp=st.integers(1, 3), pp=st.sampled_from([1, 2]), tp=st.just(1))
RESIZES = st.builds(ResizeAsked, request=st.none() | st.integers(1, 9), devices=st.integers(1, 6)) | st.builds(
    ResizeAsked, request=st.integers(1, 9), mesh=MESHES
)
DRAINS = st.builds(
    DrainAsked,
    request=st.none() | st.integers(1, 9),
    node=st.sampled_from(["n0", "n1", "n2", "n9"]),
    by_t=st.floats(1000.0, 1030.0),
    cause=st.just("a notice"),
)


def back_to(step: int) -> Checkpoint:
    return Checkpoint(step=step, uri=f"mem://{step}", tokens_total=step * 800)


STEERS = (
    st.builds(PauseAsked, request=st.integers(1, 9))
    | st.builds(ResumeAsked, request=st.integers(1, 9), steps=st.none() | st.integers(1, 4))
    | st.builds(SetAsked, request=st.integers(1, 9), lr=st.sampled_from([1e-3, 2e-3]))
    | st.builds(CheckpointAsked, request=st.integers(1, 9))
    | st.builds(RewindAsked, request=st.integers(1, 9), to=st.builds(back_to, st.integers(1, 20)), newest=st.just(20))
)
LET_GO_S = 13.0  # after all that happens: whoever holds a run lets it go again
HAPPENINGS = st.lists(st.tuples(st.floats(0.0, 12.0), STOPS | CLUSTERS), max_size=4)
CHANGES = st.lists(st.tuples(st.floats(0.0, 12.0), STOPS | CLUSTERS | RESIZES | DRAINS | STEERS), max_size=6)
WORLDS = st.fixed_dictionaries(
    {
        "kill_at": st.dictionaries(STEPS, st.integers(0, 3), max_size=1),
        "kill_once": st.dictionaries(STEPS, st.integers(0, 3), max_size=4),
        "break_once": st.sets(STEPS, max_size=3),
        "kill_after": st.lists(st.tuples(st.floats(0.0, 12.0), st.integers(0, 3)), max_size=3),
        "break_after": st.lists(st.floats(0.0, 12.0), max_size=2),
        "skipped": st.sets(STEPS, max_size=5),
        "save_fails": st.booleans(),
        "work": st.booleans(),
        "ahead": st.sets(STEPS, max_size=10),
        "save_s": st.sampled_from([0.05, 0.4, 100.0]),
        "step_s": st.sampled_from([0.01, 0.1, 3.0]),
        "eval_s": st.sampled_from([0.01, 0.5]),
        "jitter": st.integers(0, 1000),
    }
)
MOVES = st.fixed_dictionaries(
    {
        "kill_in_move": st.dictionaries(st.integers(1, 3), st.integers(0, 5), max_size=2),
        "spoil_move": st.sets(st.integers(1, 3), max_size=2),
        "unborn": st.sets(st.sampled_from(["w4", "w5", "w6"]), max_size=2),
        "move_s": st.sampled_from([0.05, 1.0, 100.0]),
        "start_s": st.sampled_from([0.3, 2.0]),
    }
)


@dataclass
class Witness:
    """Checks every turn as it comes. `works`: workers say what they have done."""

    brain: object
    works: bool = False
    turns: list[Turn] = field(default_factory=list)
    granted: int = 0

    def saw(self, turn: Turn) -> None:
        before, after = turn.before.story, turn.decision.state.story
        validate_state(turn.decision.state, self.brain.rules)
        as_asked = isinstance(turn.before, Settling) and turn.before.goes_back
        if after.committed < before.committed:
            assert after.committed == after.safe_step, "back only to a checkpoint"
            assert as_asked or after.steps_lost - before.steps_lost == before.committed - after.committed
            assert as_asked or not self.works or before.recoveries > 1 or lacks_a_holder(turn), "the state lives"
        assert after.committed - before.committed <= 1
        assert after.generation >= before.generation
        assert as_asked or after.furthest >= before.furthest
        for command in turn.decision.commands:
            if isinstance(command, AssignPlan):
                self.granted = command.step
            if isinstance(command, Grant):
                grows = self.granted < command.until or command.save_at == (command.until,)
                assert grows, "leave grows, or what it led to is saved"
                assert command.until <= self.brain.rules.steps, "leave ends at the last step"
                assert command.generation == after.generation
                self.granted = command.until
        self.turns.append(turn)


def lacks_a_holder(turn: Turn) -> bool:
    """Is some box of the plan that broke held by nobody who lives?"""
    plan, alive = plan_of(turn.before), {seat.worker for seat in seats_of(turn.decision.state)}
    return any(
        not alive & {plan.workers[rank] for rank in plan.ring(stage=stage, shard=shard)}
        for stage in range(plan.mesh.pp)
        for shard in range(plan.mesh.tp)
    )


@settings(max_examples=60, deadline=None)
@given(world=WORLDS, happenings=HAPPENINGS, eval_every=st.sampled_from([0, 3, 10]), save_every=st.sampled_from([0, 5]))
def test_a_run_keeps_the_invariants_and_ends_once(world, happenings, eval_every, save_every):
    hands = FakeHands(nodes=nodes(2, 2), **world)
    for after_s, event in happenings:
        hands.tell(after_s, event)
    mind = brain(eval_every=eval_every, save_every=save_every)
    witness = Witness(brain=mind, works=world["work"])
    last = run(first_state(epoch=1), brain=mind, hands=hands, watchers=[witness])
    assert isinstance(last, Finished | Failed)
    assert [type(c) for turn in witness.turns for c in turn.decision.commands].count(Finish) == 1
    assert (hands.finish.exit_code, hands.seats) == (last.exit_code, {}), "nothing is left behind"
    assert [record.step for record in hands.metrics] == list(range(1, last.story.committed + 1))
    assert lacks_loss(hands.metrics, mind.rules) == []
    if last.exit_code == 0:
        asked = mind.rules.steps if hands.finish.resume_step is None else hands.finish.resume_step
        assert last.story.committed == asked == last.story.safe_step


@settings(max_examples=40, deadline=None)
@given(world=WORLDS, moves=MOVES, happenings=CHANGES, standbys=st.integers(0, 2), eval_every=st.sampled_from([0, 3]))
def test_a_run_whose_plan_changes_keeps_them_too(world, moves, happenings, standbys, eval_every):
    hands = FakeHands(nodes=nodes(2, 2, 2), **{**world, **moves})
    for after_s, event in happenings:
        hands.tell(after_s, event)
    hands.tell(LET_GO_S, ResumeAsked(request=10))
    mind = moving_brain(eval_every=eval_every, standbys=standbys, steady_s=1.0)
    witness = Witness(brain=mind, works=world["work"])
    last = run(first_state(epoch=1), brain=mind, hands=hands, watchers=[witness])
    assert (hands.finish.exit_code, hands.seats) == (last.exit_code, {}), "nothing is left behind"
    assert [record.step for record in hands.metrics] == list(range(1, last.story.committed + 1))
    assert lacks_loss(hands.metrics, mind.rules) == []
    asked = [turn.event for turn in witness.turns if getattr(turn.event, "request", None) is not None]
    answers = [c for turn in witness.turns for c in turn.decision.commands if isinstance(c, Answer)]
    assert [answer.request for answer in answers] == [event.request for event in asked], "each is answered once"
