import pytest

from raymega.config.schema import Config
from raymega.errors import ConfigError
from raymega.plan.cluster import Cluster, Node
from raymega.plan.cluster_presets import cluster_of
from raymega.sim.drawing import category_lines, drawn
from raymega.sim.node_trace import failing, steady
from raymega.sim.recorder import COLUMNS
from raymega.sim.simulate import Simulation, simulate
from raymega.sim.times import Times
from tests.sim.scenarios import config, rows, scenario


def test_nothing_fails_and_all_but_the_start_is_kept() -> None:
    done = simulate(scenario(config(dp=4, pp=1), nodes=4))
    assert done.seen.steps == pytest.approx((600 - 8.5) / 2, abs=2)
    assert done.effective_share == pytest.approx(1 - 1e-3 / 2, abs=1e-5), "but for the gaps between steps"
    assert done.share_of_linear == pytest.approx(1.0, abs=0.01)
    assert done.ended == ""


def test_a_lost_node_costs_a_repair_and_no_committed_step() -> None:
    done = simulate(scenario(config(dp=4, pp=1), trace=rows((0, 4), (301.1, 3), end_s=600)))
    assert (done.seen.repairs, done.seen.rewinds) == (1, 0)
    assert done.seen.steps == pytest.approx(291.5 / 2 + 298 / (2 * 4 / 3), abs=3)
    assert done.effective_share > 0.98


def test_the_seconds_of_all_categories_add_up_to_those_of_the_plans() -> None:
    done = simulate(scenario(config(dp=2, pp=2), trace=rows((0, 4), (200, 3), (400, 4), end_s=600)))
    spent = done.seen.goodput
    assert sum(spent.seconds.values()) == spent.total_s
    assert 3 * 580 < spent.total_s < 4 * 600


def test_a_node_that_comes_back_is_taken_in() -> None:
    done = simulate(scenario(config(dp=4, pp=1), trace=rows((0, 4), (100, 3), (200, 4), end_s=600)))
    assert done.seen.stretches[-1].workers == 4
    assert done.seen.transitions >= 1


def test_without_a_boundary_log_the_broken_step_is_lost() -> None:
    asked = config(dp=2, pp=2, elastic__boundary_log="off", checkpoint__every_steps=20)
    done = simulate(scenario(asked, trace=rows((0, 4), (301, 3), end_s=600)))
    assert done.seen.repairs == 0
    assert done.seen.goodput.seconds["replay"] > 0


def test_a_stage_that_is_lost_whole_is_loaded_from_the_checkpoint() -> None:
    asked = config(dp=1, pp=3, checkpoint__every_steps=20)
    done = simulate(scenario(asked, trace=rows((0, 3), (301, 2), end_s=600)))
    assert done.seen.rewinds == 1
    assert done.seen.stretches[-1].plan.mesh.pp == 2


def test_where_nobody_is_left_the_run_waits_and_goes_on_from_its_checkpoint() -> None:
    asked = config(dp=2, pp=1, checkpoint__every_steps=10)
    done = simulate(scenario(asked, trace=rows((0, 2), (100, 0), (200, 2), end_s=600)))
    assert done.seen.rewinds == 1
    assert done.ended == ""
    assert done.seen.steps == pytest.approx((92 + 380) / 2, rel=0.05)


def test_teams_stand_for_their_devices() -> None:
    asked = config(dp=2, pp=1, tp=4)
    whole = simulate(scenario(asked, cluster=cluster_of("dgx-a100:1"), trace=steady(nodes=1, duration_s=100)))
    assert whole.scenario.team == 4
    assert whole.seen.stretches[0].workers * whole.scenario.team == 8


@pytest.mark.parametrize("seed", range(3))
def test_a_restless_cluster_is_lived_through(seed: int) -> None:
    trace = failing(nodes=6, mtbf_s=40, duration_s=900, back_after_s=60, seed=seed)
    done = simulate(scenario(config(dp=3, pp=2, checkpoint__every_steps=25), trace=trace))
    assert done.ended == ""
    assert done.seen.steps > 20


def test_more_nodes_are_never_slower() -> None:
    tokens = [_done(nodes).tokens_per_s for nodes in (1, 2, 3, 4, 6, 8)]
    assert tokens == sorted(tokens)


def _done(nodes: int) -> Simulation:
    asked = config(dp=8, pp=1)
    return simulate(scenario(asked, cluster=cluster_of("cpu:8"), trace=rows((0, nodes), end_s=300), full_step_s=None))


@pytest.mark.parametrize("name", ["detect_s", "regroup_s", "start_s"])
def test_slower_hands_never_keep_more(name: str) -> None:
    trace = failing(nodes=4, mtbf_s=100, duration_s=1200, back_after_s=60, seed=3)
    asked: Config = config(dp=4, pp=1)
    kept = [simulate(scenario(asked, trace=trace, times=Times(**{name: value}))).seen.tokens for value in (0.5, 8, 30)]
    assert kept == sorted(kept, reverse=True)


def test_the_same_seed_gives_the_same_run() -> None:
    trace = failing(nodes=4, mtbf_s=60, duration_s=600, back_after_s=60, seed=7)
    first, second = (simulate(scenario(config(dp=2, pp=2), trace=trace)) for _ in range(2))
    assert first.seen.stretches == second.seen.stretches


def test_the_run_is_drawn_over_its_time() -> None:
    text = drawn(simulate(scenario(config(dp=4, pp=1), trace=rows((0, 4), (300, 2), end_s=600))))
    nodes, speed, paused, axis = text.splitlines()
    assert nodes == f"nodes        4 |{'█' * 36}{'▄' * 36}|"
    assert "r" in paused
    assert len(speed) == len(f"nodes        4 |{' ' * COLUMNS}|")
    assert axis.endswith("10 min")


def test_a_cluster_without_a_device_is_refused() -> None:
    nothing = Cluster(nodes=(Node(id="n0", devices=0),))
    with pytest.raises(ConfigError, match="no free device"):
        simulate(scenario(config(dp=1, pp=1), cluster=nothing, trace=steady(nodes=1, duration_s=10)))


def test_a_time_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="move_bytes_per_s is -1"):
        Times(move_bytes_per_s=-1)


def test_fewer_devices_than_the_config_allows_end_the_run_with_the_reason() -> None:
    done = simulate(scenario(config(dp=2, pp=1, elastic__min_devices=2), trace=rows((0, 1), end_s=100)))
    assert "elastic.min_devices is 2" in done.ended


@pytest.mark.parametrize(("trace", "without_s"), [
    (rows((0, 4), (100, 0), (200, 4), end_s=400), 100), (rows((0, 0), (100, 4), end_s=400), 100),
    (rows((0, 4), (100, 3), (200, 4), end_s=400), 0),
])  # fmt: skip
def test_worker_seconds_are_of_devices_that_exist_and_time_without_any_is_told_beside_them(trace, without_s) -> None:
    done = simulate(scenario(config(dp=2, pp=2, checkpoint__every_steps=5), trace=trace))
    spent = done.seen.goodput
    assert done.worker_hours + done.spare_hours == pytest.approx(done.device_hours)
    assert spent.without_nodes_s == pytest.approx(without_s, abs=1.0)
    assert spent.seconds["idle"] < 1.0 * 4
    told = "\n".join(category_lines(done))
    assert ("no node to run on for" in told, "in no plan" in told) == (without_s > 0, True)


def test_nodes_that_go_one_after_the_other_in_one_long_step_end_no_run() -> None:
    gone = rows((0, 6), (100, 5), (150, 4), (200, 3), (250, 2), end_s=2000)
    asked = config(dp=6, pp=1, elastic__max_restarts=1)
    done = simulate(scenario(asked, trace=gone, full_step_s=300.0))
    assert (done.ended, done.seen.rewinds, done.seen.repairs) == ("", 0, 1), "one repair, broken three times"
    assert done.seen.steps > 0
