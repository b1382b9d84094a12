"""The orders of events that break naive versions of a step, each by its name."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from raymega.pipeline.repair import StagesLost
from raymega.plan.plan import Plan
from raymega.plan.repairs import repair_plan
from raymega.plan.stages import balanced_layers
from raymega.worker.interface import Decision
from tests.waiting import eventually
from tests.worker.killing import KillWorld, kill_world
from tests.worker.rig import LIMIT_S


@pytest.fixture(scope="module")
def replicas() -> Iterator[KillWorld]:
    with kill_world((2, 1, 1)) as world:
        world.look()
        yield world


@pytest.fixture(scope="module")
def pipelines() -> Iterator[KillWorld]:
    with kill_world((3, 1, 2)) as world:
        world.look()
        yield world


@pytest.fixture(scope="module")
def long_pipelines() -> Iterator[KillWorld]:
    with kill_world((2, 1, 3)) as world:
        world.look()
        yield world


@pytest.fixture(scope="module")
def teams() -> Iterator[KillWorld]:
    """Two replicas of two stages of two shards, with two chunks each: two buckets to reduce."""

    def interleaved(plan: Plan) -> Plan:
        return replace(plan, schedule="interleaved", layers=balanced_layers(4, num_stages=4))

    with kill_world((2, 2, 2), change=interleaved, num_layers=4) as world:
        world.look()
        yield world


@contextmanager
def decision_held_back(world: KillWorld, worker: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """(set when `worker` has the outcome of DECIDE, lets it record it)."""
    orders, has_it, may = world.run.workers[worker].orders, threading.Event(), threading.Event()
    record = orders.decide

    def decide(decision: Decision) -> bool:
        has_it.set()
        assert may.wait(LIMIT_S)
        return record(decision)

    orders.decide = decide
    world.begin()
    del orders.decide
    yield has_it, may


def test_a_decision_held_back_until_after_the_promise_is_applied_as_others_decided_it(replicas):
    with decision_held_back(replicas, "w1") as (has_it, may):
        replicas.run.start(replicas.plan, until=1, generation=replicas.generation)
        assert has_it.wait(LIMIT_S)
        eventually(lambda: replicas.run.workers["w0"].state.committed == 1)
        assert replicas.run.workers["w1"].abort(replicas.generation) is None
        may.set()
    case = replicas.go_on(replicas.recover(replicas.plan, dead=set()), dead=set())
    assert case.settled is not None
    replicas.check(case)


def test_a_decision_held_back_until_after_the_promise_is_void_if_all_others_died_with_theirs(replicas):
    with decision_held_back(replicas, "w1") as (has_it, may):
        replicas.strike(replicas.plan, "w0", at="apply")
        assert has_it.wait(LIMIT_S)
        assert replicas.run.workers["w1"].abort(replicas.generation) is None
        may.set()
    case = replicas.go_on(replicas.recover(replicas.plan, dead={"w0"}), dead={"w0"})
    assert case.settled is None
    replicas.check(case)


def test_a_shard_killed_between_two_buckets_takes_its_team_with_it_and_no_other(teams):
    case = teams.kill("w0", at="compute dp all_reduce 2")
    assert set(case.recovered.kept) == {"replica 0 stage 1", "replica 1 stage 0", "replica 1 stage 1"}
    teams.check(case)


@pytest.mark.parametrize("victim", ["w1", "w3"])
def test_shards_of_a_team_that_were_sent_different_inputs_stop_after_the_same_action(teams, victim):
    sends = [point for point in teams.points[victim] if point.startswith("compute send")]
    assert len(sends) >= 4
    for point in sends:  # its partner's message goes out, its own does not
        teams.check(teams.kill(victim, at=point))


@contextmanager
def stopped_in_a_backward(world: KillWorld, workers: set[str]) -> Iterator[dict[str, threading.Event]]:
    """Each of `workers` is held inside its first backward, after it has added some gradients and not all."""
    inside, hub = {worker: threading.Event() for worker in workers}, world.run.hub
    now: dict[str, str] = {}

    def meets(worker: str, point: str) -> None:
        if not point.startswith("compute all_reduce"):
            now[worker] = point
        elif worker in workers and "B" in now[worker] and not inside[worker].is_set():
            if world.run.workers[worker].state.chunks[int(now[worker].split("B")[0])].model.flat.grad.any():
                hub.hold(worker)
                inside[worker].set()

    world.meets = meets
    yield inside
    world.meets = lambda worker, point: None


def test_healthy_teams_that_are_in_mid_backward_keep_everything(teams):
    teams.begin()
    with stopped_in_a_backward(teams, {"w2", "w6"}) as inside:
        teams.run.start(teams.plan, until=1, generation=teams.generation)
        assert all(event.wait(LIMIT_S) for event in inside.values())
        teams.run.hub.kill("w0")
        for name in teams.plan.living:
            teams.run.workers[name].abort(teams.generation)
        for name in inside:
            teams.run.hub.release(name)
    case = teams.go_on(teams.recover(teams.plan, dead={"w0"}), dead={"w0"})
    for team in ("replica 0 stage 1", "replica 1 stage 1"):
        assert any(action.kind == "B" for action in case.recovered.kept[team])
    teams.check(case)


def test_a_repairing_peer_is_killed_likewise(pipelines):
    world = pipelines
    world.begin()
    world.strike(world.plan, "w0", at="0B3")
    found = world.recover(world.plan, dead={"w0"})
    moved = next(m for m, route in enumerate(found.plan.routes) if route[0] != world.plan.routes[m][0])
    peer = found.plan.worker(replace(world.plan.coord_of("w0"), replica=found.plan.routes[moved][0]))
    world.strike(found.plan, peer, at=f"0B{moved}")
    dead = {"w0", peer}
    world.check(world.go_on(world.recover(found.plan, dead={peer}), dead=dead))


@pytest.mark.parametrize("victims", [("w0", "w1"), ("w1", "w2"), ("w4", "w3")], ids=str)
def test_two_neighbouring_stages_of_a_replica_are_killed_together(long_pipelines, victims):
    actions = [point for point in long_pipelines.points[victims[0]] if " " not in point]
    for point in actions:
        case = long_pipelines.kill(*victims, at=point)
        long_pipelines.check(case)


@pytest.fixture(scope="module")
def skipping() -> Iterator[KillWorld]:
    """Two pipelines, in whose first step one element of the gradient of the last stage is infinite."""
    with kill_world((2, 1, 2)) as world:
        look_on = world.run.hub.on_op

        def on_op(worker: str, key: str, op: str) -> None:
            state = world.run.workers[worker].state
            if (worker, op) == ("w3", "all_reduce") and "/dp/" in key and state.committed == 0:
                state.chunks[1].reduced[0] = torch.inf
            look_on(worker, key, op)

        world.run.hub.on_op = on_op
        world.look()
        assert world.reports[0].skipped
        yield world


@pytest.mark.parametrize("at", ["0B2", "reduce", "decide", "decide all_gather_bytes 2", "apply"])
@pytest.mark.parametrize("victim", ["w0", "w2"])
def test_a_death_in_a_step_that_is_skipped_skips_it_once_and_everywhere(skipping, victim, at):
    case = skipping.kill(victim, at=at.replace("2", "3") if victim == "w2" and "B" in at else at)
    skipping.check(case)
    assert all(skipping.run.workers[name].state.skipped == 1 for name in case.recovered.plan.living)


def test_without_another_holder_of_its_state_a_stage_that_dies_in_apply_is_named_and_others_keep_the_step():
    with kill_world((1, 1, 2)) as world:
        world.look()
        world.begin()
        applies = threading.Event()

        def meets(worker: str, point: str) -> None:
            if point == "apply":
                applies.set() if worker == "w0" else applies.wait(LIMIT_S)

        world.meets = meets
        world.strike(world.plan, "w1", at="apply")
        world.run.workers["w0"].abort(world.generation)
        left = world.run.leaving("w0")
        found = repair_plan(world.plan, reports={"w0": left.work})
    assert isinstance(found, StagesLost)
    assert found.stages == (1,)
    assert left.decided is not None
    assert left.decided.step == 1
