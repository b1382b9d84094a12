from dataclasses import replace

import pytest

from raymega.control.loop import Turn
from raymega.mesh import Mesh
from raymega.plan.cluster_presets import cluster_of
from raymega.sim import simulate as room
from raymega.sim.calibrated import Calibration, calibrated
from raymega.sim.node_trace import failing
from raymega.sim.recorder import Recorder
from raymega.sim.simulate import Simulation, simulate
from raymega.sim.times import Times
from tests.sim.scenarios import config, rows, scenario

TRUE = Times(
    detect_s=0.4, answer_s=0.9, regroup_s=2.5, switch_s=1.5, first_s=20.0, start_s=14.0, move_bytes_per_s=3e7,
    gap_s=0.05,
)  # fmt: skip


def told(monkeypatch: pytest.MonkeyPatch, *, times: Times = TRUE) -> list[Turn]:
    """The turns of a run that really takes `times`."""
    turns = list[Turn]()

    class Keeping(Recorder):
        def saw(self, turn: Turn) -> None:
            turns.append(turn)
            super().saw(turn)

    monkeypatch.setattr(room, "Recorder", Keeping)
    simulate(scenario(config(dp=4, pp=1), trace=rows((0, 4), (200.5, 3), (300, 4), end_s=500), times=times))
    monkeypatch.undo()
    return turns


def test_a_journal_tells_what_its_hands_took(monkeypatch: pytest.MonkeyPatch) -> None:
    found = calibrated(told(monkeypatch), default=Times())
    for name in ("detect_s", "answer_s", "regroup_s", "switch_s", "first_s", "start_s", "move_bytes_per_s", "gap_s"):
        assert getattr(found.times, name) == pytest.approx(getattr(TRUE, name), rel=0.05), name
    assert found.step_s == pytest.approx(2.0, rel=0.01)
    assert found.workers == 4


def test_what_did_not_happen_keeps_its_default() -> None:
    assert calibrated([], default=Times()) == Calibration(times=Times(), steps_s={})


def test_from_one_run_the_goodput_of_another_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = calibrated(told(monkeypatch), default=Times())
    trace = failing(nodes=4, mtbf_s=120, duration_s=900, back_after_s=90, seed=1)

    def other(times: Times, step_s: float | None) -> Simulation:
        return simulate(scenario(config(dp=4, pp=1), trace=trace, times=times, full_step_s=step_s))

    real, guess, uncalibrated = other(TRUE, 2.0), other(found.times, found.step_s), other(Times(), 2.0)
    assert guess.seen.goodput.share == pytest.approx(real.seen.goodput.share, abs=0.01)
    assert abs(uncalibrated.seen.goodput.share - real.seen.goodput.share) > 0.03


def test_a_plan_that_was_measured_takes_as_long_as_it_took() -> None:
    lost_one = scenario(config(dp=4, pp=1), trace=rows((0, 4), (100.5, 3), end_s=200))
    done = simulate(replace(lost_one, steps_s={(Mesh(dp=4, tp=1, pp=1), 3): 5.0}))
    assert done.seen.stretches[0].step_s == pytest.approx(2.0)
    assert done.seen.stretches[-1].step_s == pytest.approx(5.0)


def test_measured_steps_are_those_of_whole_teams() -> None:
    teams = scenario(config(dp=2, pp=1, tp=4), nodes=1, cluster=cluster_of("dgx-a100:1"), full_step_s=None)
    done = simulate(replace(teams, steps_s={(Mesh(dp=2, tp=4, pp=1), 8): 7.0}))
    assert [stretch.step_s for stretch in done.seen.stretches] == pytest.approx([7.0])
