"""A step that broke is finished from what is left of it, and only where that is possible."""

from dataclasses import replace

import pytest

from raymega.control.arbitration import Decided, Version
from raymega.control.broken import RepairUnderway
from raymega.control.commands import AssignPlan, Rewind, StopWorkers, WriteRepair
from raymega.control.events import CheckpointPublished, ControllerTakenOver, GenerationLeft, NodesChanged, WorkersReady
from raymega.control.states import Restoring, Training
from raymega.control.transitions import decide
from raymega.pipeline.actions import Action, parse_program
from raymega.pipeline.missing import TeamReport
from tests.control.examples import IN, PLAN, G, left, lost, step
from tests.control.fake_hands import FakeHands, brain, nodes
from tests.control.test_whole_runs import play, steps

FACTS = Decided(version=Version(step=10, generation=G), facts=b"\x00\xff")


def done(text: str) -> frozenset[Action]:
    return frozenset(parse_program(text))


def promise(worker: str, *, committed: int = 9, decided: Decided | None = None, work: str = "") -> GenerationLeft:
    stages, facts = (PLAN.coord_of(worker).stage,), done(work)
    return replace(
        left(worker, committed), decided_in=G if committed == 10 else 0, decided=decided,
        work=TeamReport(stages=stages, done=facts, logged=facts),
    )  # fmt: skip


def broken(*said: object, **rules: float):
    """The decisions from the first sign on, in the middle of step 10."""
    state, decisions = IN["training"], []
    for event in said:
        decisions.append(decide(brain(**rules), state, event, 100.0 + len(decisions)))
        state = decisions[-1].state
    return decisions[-1]


def assigned(decision) -> AssignPlan:
    return next(command for command in decision.commands if isinstance(command, AssignPlan))


def test_a_lost_worker_costs_no_step_where_its_stage_has_another():
    decision = broken(promise("w0", work="0F0"), promise("w1"), lost("w3"), promise("w2"))
    assign = assigned(decision)
    assert [type(command).__name__ for command in decision.commands] == ["StopWorkers", "AssignPlan", "FeedFrom"]
    assert (assign.generation, assign.step, assign.keep_state, assign.settle) == (G + 1, 9, True, None)
    assert (assign.plan.lost, set(assign.repair)) == (frozenset({(1, 1)}), {"w0", "w1", "w2"})
    assert assign.repair["w0"].kept == done("0F0")
    assert isinstance(decision.state, Restoring)
    assert (decision.state.story.committed, decision.state.story.steps_lost) == (9, 0)
    assert "step 10 is repaired" in decision.reason


def test_a_step_that_somebody_decided_is_applied_by_all_and_the_next_one_repaired():
    told = (step(10), promise("w0", committed=10, decided=FACTS, work="0F0"))
    decision = broken(*told, promise("w1", work="1F0 1B0"), lost("w3"), promise("w2"))
    assign = assigned(decision)
    assert (assign.step, assign.settle) == (10, FACTS)
    assert assign.repair["w1"].kept == frozenset(), "what it had done was of the step that is applied now"


def test_the_last_words_of_the_dead_are_enough_to_apply_a_step():
    decision = broken(replace(step(10), decided=FACTS), promise("w1"), promise("w2"), promise("w3"), lost("w0"))
    assert (assigned(decision).step, assigned(decision).settle) == (10, FACTS)


GONE_NODE = NodesChanged(nodes=nodes(0, 2)[1:])
TAKEN = ControllerTakenOver(epoch=2, silent_s=1.0)


@pytest.mark.parametrize("missed", [(lost("w0"), lost("w1")), (GONE_NODE,), (TAKEN, lost("w0"), lost("w1"))])
def test_a_commit_that_was_told_is_applied_however_those_who_decided_it_are_missed(missed):
    decision = broken(replace(step(10), decided=FACTS), *missed, promise("w2"), promise("w3"))
    assert (assigned(decision).step, assigned(decision).settle) == (10, FACTS)
    assert decision.state.story.steps_lost == 0


@pytest.mark.parametrize("void", [left("w2"), promise("w2", committed=7)])
def test_whose_state_is_of_no_use_counts_as_lost_where_another_has_it(void):
    decision = broken(lost("w3"), promise("w0"), promise("w1"), void)
    assert decision.commands[0] == StopWorkers(workers=("w2", "w3"))
    assert (assigned(decision).plan.living, decision.state.story.steps_lost) == (("w0", "w1"), 0)


def test_without_a_log_the_step_is_done_anew_and_none_before_it():
    decision = broken(lost("w3"), *(left(worker) for worker in ("w0", "w1", "w2")), repairs=False)
    assert (assigned(decision).step, assigned(decision).keep_state, assigned(decision).repair) == (9, True, {})
    assert assigned(decision).plan.lost == frozenset({(1, 1)})
    assert "boundary_log is off, and the step begins anew" in decision.reason


def test_what_breaks_before_the_step_is_begun_breaks_no_state():
    state = broken(lost("w3"), *(left(worker) for worker in ("w0", "w1", "w2")), repairs=False).state
    for event in (lost("w2"), replace(left("w0"), generation=G + 1), replace(left("w1"), generation=G + 1)):
        decision = decide(brain(), state, event, 110.0)
        state = decision.state
    assert (assigned(decision).plan.living, assigned(decision).keep_state) == (("w0", "w1"), True)


UNREPAIRABLE = [
    ((lost("w1"), lost("w3"), promise("w0"), promise("w2")), {}, "no living team holds stage 1"),
    ((lost("w3"), left("w0"), promise("w1"), left("w2")), {}, "no living team holds stage 0"),
    ((step(10), promise("w1"), promise("w2"), promise("w3"), lost("w0")), {}, "nobody who is left has decided step 10"),
    ((lost("w3"), promise("w0"), promise("w1"), promise("w2")), {"min_devices": 4}, "elastic.min_devices is 4"),
]


@pytest.mark.parametrize(("said", "rules", "why"), UNREPAIRABLE)
def test_what_cannot_be_repaired_goes_back_to_the_checkpoint_and_says_why(said, rules, why):
    decision = broken(*said, **rules)
    assert why in decision.reason
    assert Rewind(step=5) in decision.commands


def test_a_death_during_a_repair_is_repaired_likewise():
    first = broken(promise("w0", committed=10, decided=FACTS), step(10), promise("w1"), lost("w3"), promise("w2"))
    state = first.state
    for event in (lost("w2"), *(replace(promise(w), generation=G + 1) for w in ("w0", "w1"))):
        if getattr(event, "worker", "") == "w0":
            event = replace(event, committed=10, decided_in=G)
        decision = decide(brain(), state, event, 110.0)
        state = decision.state
    assert assigned(decision).plan.living == ("w0", "w1")
    assert (assigned(decision).step, assigned(decision).settle) == (10, FACTS), "w1 had not yet applied it"


def test_what_a_repair_took_is_told_with_its_commit():
    decision = broken(promise("w0"), promise("w1"), lost("w3", silent_s=2.5), promise("w2"))
    ready = decide(brain(), decision.state, WorkersReady(generation=G + 1), 103.5)
    committed = decide(brain(), ready.state, step(10, generation=G + 1), 104.25)
    repair = next(command for command in committed.commands if isinstance(command, WriteRepair))
    assert (repair.step, repair.missing, repair.recomputed) == (10, 16, 4)
    assert (repair.detect_s, repair.regroup_s, repair.repair_s) == (0.5, 3.5, 0.75)
    assert isinstance(committed.state, Training)
    assert committed.state.repair is None


def test_a_run_goes_on_with_what_is_left_and_loses_nothing():
    hands = FakeHands(nodes=nodes(4), work=True, kill_once={7: 3, 13: 0}, ahead={13})
    last, _ = play(hands)
    assert (last.exit_code, last.story.steps_lost, steps(hands)) == (0, 0, list(range(1, 21)))
    assert hands.started == ["w0", "w1", "w2", "w3"]
    assert not any(isinstance(command, Rewind) for command in hands.commands)
    assert sum(isinstance(command, WriteRepair) for command in hands.commands) == 2
    assert last.story.safe_step == 20, "plans with lost teams are saved by those that live"


def test_a_checkpoint_that_a_loss_has_broken_is_made_up_for_by_the_next_step():
    hands = FakeHands(nodes=nodes(4), work=True, kill_once={11: 3}, save_s=0.5)
    last, story = play(hands)
    published = [turn.event.step for turn in story.turns if isinstance(turn.event, CheckpointPublished)]
    assert published == [5, 11, 15, 20], "10 was on its way when the worker died"
    assert last.story.steps_lost == 0


def test_repairs_without_progress_end_with_the_allowed_number():
    hands = FakeHands(nodes=nodes(4), work=True, kill_at={9: 1})
    last, _ = play(hands, max_restarts=2)
    assert "2 recoveries brought no new step" in last.reason
    assert last.exit_code == 4


def test_gradients_that_are_lost_with_their_holder_are_told_with_their_norm():
    decision = broken(promise("w0"), promise("w1"), replace(lost("w3"), unsent_norm=0.0125), promise("w2"))
    assert "gradients that it had not sent yet, of norm 0.0125" in decision.reason
    assert "not sent yet" not in broken(promise("w0"), promise("w1"), lost("w3"), promise("w2")).reason


def test_the_rest_of_a_step_says_nothing_of_how_long_steps_are():
    underway = RepairUnderway(step=10, missing=0, recomputed=0, detect_s=0.0, since=99.0, ready_at=99.5)
    mended = replace(IN["training"], repair=underway, recent_step_s=(1.0,))
    after = decide(brain(), mended, replace(step(10), step_s=0.001), 100.0).state
    assert after.recent_step_s == (1.0,)
    assert after.granted <= 12, "a step of a millisecond would have leave for seconds of them"
