from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raymega.control.events import StepCommitted, Tick
from raymega.control.states import Training
from raymega.sim.node_trace import NodeTrace, failing
from raymega.sim.simulate import Scenario
from tests.sim.scenarios import config, rows, scenario
from tests.sim.watching import Watched, watched

Position = tuple[float, str, int, int]


def positions(run: Watched) -> list[Position]:
    """Every decision that has a reason: when, why, after how many steps, with leave for how many."""
    found = list[Position]()
    for turn in run.turns:
        after = turn.decision.state
        leave = after.granted if isinstance(after, Training) else 0
        if turn.decision.reason:
            found.append((round(turn.t, 6), turn.decision.reason, after.story.committed, leave))
    return found


@given(
    seed=st.integers(0, 99), mtbf_s=st.sampled_from([40, 150]), step_s=st.sampled_from([0.11, 1.7, 23.0]),
    saves=st.sampled_from([0, 7]), at_once=st.integers(2, 60) | st.none(),
)  # fmt: skip
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_steps_told_at_once_are_decided_on_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch, seed: int, mtbf_s: int, step_s: float, saves: int, at_once: int | None
) -> None:
    trace = failing(nodes=5, mtbf_s=mtbf_s, duration_s=300, back_after_s=70, seed=seed)
    asked = config(dp=5, pp=1, training__batch_size=60, checkpoint__every_steps=saves)
    shared = replace(scenario(asked, trace=trace, full_step_s=step_s), seed=seed)
    one, many = (watched(replace(shared, most_at_once=most), monkeypatch) for most in (1, at_once))
    assert positions(many) == positions(one)
    assert many.done.seen.steps == one.done.seen.steps
    assert many.done.seen.goodput.seconds == pytest.approx(one.done.seen.goodput.seconds, rel=1e-9, abs=1e-6)
    assert many.done.seen.work == pytest.approx(one.done.seen.work, abs=2.0), "drawn, but for the gaps"


def test_short_steps_are_told_at_once_while_checkpoints_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = config(dp=4, pp=1, checkpoint__every_steps=100)
    shared = scenario(asked, trace=rows((0, 4), end_s=12), full_step_s=0.0005)
    one, many = (watched(replace(shared, most_at_once=most), monkeypatch) for most in (1, None))
    assert positions(many) == positions(one)
    assert many.done.seen.goodput.seconds == pytest.approx(one.done.seen.goodput.seconds, rel=1e-9, abs=1e-6)
    steps = [turn for turn in many.turns if isinstance(turn.event, StepCommitted)]
    assert len(steps) < many.done.seen.steps / 8 < len(one.turns) / 8


def decided(monkeypatch: pytest.MonkeyPatch, trace: NodeTrace) -> Watched:
    shared: Scenario = scenario(config(dp=4, pp=1, checkpoint__every_steps=0), trace=trace, full_step_s=2.0)
    return watched(shared, monkeypatch)


def test_a_week_without_anything_takes_no_more_decisions_than_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    day, week = (decided(monkeypatch, rows((0, 4), end_s=days * 86400.0)) for days in (1, 7))
    assert week.done.seen.steps > 300_000
    assert len(week.turns) < len(day.turns) + 10 < 60


def test_decisions_are_counted_by_what_happens_not_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = failing(nodes=4, mtbf_s=4000, duration_s=100_000, back_after_s=900, seed=3)
    run = decided(monkeypatch, trace)
    assert run.done.seen.steps > 30_000
    assert len(run.turns) / trace.changes < 40
    assert sum(isinstance(turn.event, StepCommitted | Tick) for turn in run.turns) / trace.changes < 30
