"""Whatever goes wrong, in whatever order it is heard of: the invariants hold and the run ends once, truthfully."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.control.commands import AssignPlan, Finish, Grant
from raymega.control.events import NodesChanged, StopAsked
from raymega.control.invariants import validate_state
from raymega.control.loop import Turn, run
from raymega.control.states import Failed, Finished, first_state
from tests.control.fake_hands import FakeHands, brain, nodes

STEPS = st.integers(1, 20)
STOPS = st.builds(
    StopAsked,
    by=st.sampled_from(["user", "interrupt", "terminate", "client_gone", "deadline"]),
    grace_s=st.sampled_from([None, 0.0, 0.2, 5.0]),
)
CLUSTERS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda devices: NodesChanged(nodes=nodes(*devices)))
HAPPENINGS = st.lists(st.tuples(st.floats(0.0, 12.0), STOPS | CLUSTERS), max_size=4)
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
        "jitter": st.integers(0, 1000),
    }
)


@dataclass
class Witness:
    """Checks every turn as it comes."""

    brain: object
    turns: list[Turn] = field(default_factory=list)
    granted: int = 0

    def saw(self, turn: Turn) -> None:
        before, after = turn.before.story, turn.decision.state.story
        validate_state(turn.decision.state, self.brain.rules)
        if after.committed < before.committed:
            assert after.committed == after.safe_step, "back only to a checkpoint"
            assert after.steps_lost - before.steps_lost == before.committed - after.committed
        assert after.committed - before.committed <= 1
        assert after.generation >= before.generation
        assert after.furthest >= before.furthest
        for command in turn.decision.commands:
            if isinstance(command, AssignPlan):
                self.granted = command.step
            if isinstance(command, Grant):
                assert self.granted < command.until <= self.brain.rules.steps, "leave grows, and ends at the last step"
                assert command.generation == after.generation
                self.granted = command.until
        self.turns.append(turn)


@settings(max_examples=60, deadline=None)
@given(world=WORLDS, happenings=HAPPENINGS, eval_every=st.sampled_from([0, 3, 10]), save_every=st.sampled_from([0, 5]))
def test_a_run_keeps_the_invariants_and_ends_once(world, happenings, eval_every, save_every):
    hands = FakeHands(nodes=nodes(2, 2), **world)
    for after_s, event in happenings:
        hands.tell(after_s, event)
    mind = brain(eval_every=eval_every, save_every=save_every)
    witness = Witness(brain=mind)
    last = run(first_state(epoch=1), brain=mind, hands=hands, watchers=[witness])
    assert isinstance(last, Finished | Failed)
    assert [type(c) for turn in witness.turns for c in turn.decision.commands].count(Finish) == 1
    assert (hands.finish.exit_code, hands.seats) == (last.exit_code, {}), "nothing is left behind"
    assert [record.step for record in hands.metrics] == list(range(1, last.story.committed + 1))
    if last.exit_code == 0:
        asked = mind.rules.steps if hands.finish.resume_step is None else hands.finish.resume_step
        assert last.story.committed == asked == last.story.safe_step
