"""Nothing is lost: a worker is killed at every point of a step, and the step is finished as if nobody had been.

What is computed again is exactly what died with the worker, counted by the calls of forwards and backwards.
"""

import threading
from collections import Counter
from functools import lru_cache

import pytest

from raymega.pipeline.actions import Action, work_of_step
from raymega.worker import execute
from tests.worker.rig import LIMIT_S, ONE, Result, relative, run_layout, thread_run, tiny_config, tiny_plan

STEPS = 3
CALM = {"lr": 0.02, "steps": STEPS}
MODEL = {"num_layers": 3}


@lru_cache
def undisturbed() -> Result:
    return run_layout(ONE, model=tuple(MODEL.items()), **CALM)


def killed_at(layout, *, victim: str, op: str, nth: int):
    """Train, kill `victim` before its nth operation `op` of step 1, recover, go on: (reports, weights, recovered)."""
    config = tiny_config(model=MODEL, **{k: v for k, v in CALM.items()})
    dp, tp, pp = layout
    plan = tiny_plan(config, dp=dp, tp=tp, pp=pp)
    with thread_run(config, num_workers=plan.mesh.size) as run:
        run.assign(plan)
        reports = run.train(plan, until=1)
        died, count = threading.Event(), [0]

        def on_op(worker: str, key: str, name: str) -> None:
            if worker == victim and name == op and not died.is_set():
                count[0] += 1
                if count[0] == nth:
                    died.set()
                    run.hub.kill(victim)

        run.hub.on_op = on_op
        run.start(plan, first=1, until=2)
        assert died.wait(LIMIT_S), f"{victim} makes no {nth}th {op}"
        run.hub.on_op = None
        found = run.recover(plan, dead={victim}, generation=2)
        assert found.step in (1, 2)
        reports = reports + run.train(found.plan, generation=2, first=found.step, until=STEPS)
        return reports, run.weights(found.plan), found


@pytest.fixture
def ran(monkeypatch) -> list[tuple[str, int, Action]]:
    """(worker, step, action) of everything that was computed to its end, whatever any ledger says."""
    undisturbed()  # the reference is not counted
    calls: list[tuple[str, int, Action]] = []
    for name in ("forward", "backward"):
        real = getattr(execute._Run, name)

        def counted(self, action, *, real=real):
            try:
                real(self, action)
            finally:
                if self._work.spans and self._work.spans[-1][0] == action:
                    calls.append((self._executor.world.me, self._batch.step, action))

        monkeypatch.setattr(execute._Run, name, counted)
    return calls


def assert_only_the_dead_teams_work_was_repeated(ran, *, victim: str) -> None:
    counts = Counter(action for _, step, action in ran if step == 1)
    died = {action for worker, step, action in ran if step == 1 and worker == victim}
    assert {action for action, count in counts.items() if count > 1} == died
    assert max(counts.values()) <= 2
    assert set(counts) == work_of_step(num_stages=2, num_microbatches=4)


def assert_undisturbed(reports, weights) -> None:
    by_step = {report.step: report for report in reports}
    for report in undisturbed().reports:
        if report.step in by_step:  # the commit of the step in which the victim decided may be told by nobody
            assert by_step[report.step].loss == pytest.approx(report.loss, rel=1e-5)
            assert by_step[report.step].grad_norm == pytest.approx(report.grad_norm, rel=1e-5)
    assert all(relative(weight, undisturbed().weights[name]) < 1e-5 for name, weight in weights.items())


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("op", ["send", "recv"])
@pytest.mark.parametrize("victim", ["w0", "w3"])
def test_a_death_in_the_compute_phase_costs_only_what_died(victim, op, nth, ran):
    reports, weights, _ = killed_at((2, 1, 2), victim=victim, op=op, nth=nth)
    assert_undisturbed(reports, weights)
    assert_only_the_dead_teams_work_was_repeated(ran, victim=victim)


@pytest.mark.parametrize("victim", ["w0", "w1", "w2", "w3"])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather_bytes"])
def test_a_death_while_reducing_or_deciding_costs_the_work_of_the_dead_team_only(victim, op, ran):
    reports, weights, _ = killed_at((2, 1, 2), victim=victim, op=op, nth=1)
    assert_undisturbed(reports, weights)
    assert_only_the_dead_teams_work_was_repeated(ran, victim=victim)


@pytest.mark.parametrize("layout", [(3, 1, 2), (2, 1, 3)], ids=str)
@pytest.mark.parametrize(("op", "nth"), [("send", 1), ("recv", 1), ("all_reduce", 1), ("all_gather_bytes", 2)])
def test_other_meshes_are_repaired_likewise(layout, op, nth):
    reports, weights, _ = killed_at(layout, victim="w2", op=op, nth=nth)
    assert_undisturbed(reports, weights)


def test_survivors_tell_the_steps_that_the_dead_reporter_told_nobody_of():
    config = tiny_config(model=MODEL, **CALM)
    plan = tiny_plan(config, dp=2, tp=1, pp=1)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        told = run.train(plan, until=2)
        run.workers["w1"].abort(1)
        left = run.leaving("w1")
    assert [(c.step, c.loss, c.facts) for c in left.commits] == [(r.step, r.loss, r.facts) for r in told]
    assert (left.committed, left.decided_in, left.decided.facts) == (2, 1, told[-1].facts)
