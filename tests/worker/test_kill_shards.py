"""A kill at every point of a step where the optimizer state is cut: a mirror takes over, or the state is gone.

Under every schedule. `make test` draws some of the points; all of them are among the soaks.
"""

import random
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch

from raymega.pipeline.repair import StagesLost
from raymega.plan.repairs import repair_plan
from raymega.worker import step
from tests.waiting import eventually
from tests.worker.killing import KillWorld, kill_world

CHUNKS = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zb-h1": 1, "zb-h2": 1, "zb-v": 2}
POINTS = ["compute sum 1", "reduce", "reduce all_to_all 1", "decide", "decide all_gather_bytes 1", "apply", "gather"]
AFTER = ["gather all_gather 1", "gather all_gather 2"]
SAMPLE = 1  # of each schedule


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "BUCKET_BYTES", 1024)


def cut_world(layout: tuple[int, int, int], kind: str, *, schedule: str = "1f1b") -> AbstractContextManager[KillWorld]:
    return kill_world(
        layout, change=lambda plan: replace(plan, shard_optimizer=kind), schedule=schedule, chunks=CHUNKS[schedule]
    )


def points_of(world: KillWorld, victim: str) -> list[str]:
    """Actions, phases, sums, and operations of the reduction and the decision."""
    return [point for point in world.points[victim] if "sum" in point or not point.startswith("compute ")]


def takes_over(world: KillWorld, victim: str, point: str) -> None:
    """A kill there costs what died and nothing else, and everybody computes with the weights of the state."""
    case = world.kill(victim, at=point)
    try:
        world.check(case)
        for worker in case.recovered.plan.living:
            weights_follow(world, worker)
    except AssertionError as error:
        raise AssertionError(f"{victim} was killed at {point}: {case.recovered.reason}") from error


def weights_follow(world: KillWorld, worker: str) -> None:
    for chunk in world.run.workers[worker].state.chunks.values():
        for piece in chunk.pieces:
            for rows in chunk.layouts[piece.index].rows:
                assert torch.equal(rows.line(piece.data), rows.of(chunk.model.flat.data))


def test_a_mirror_takes_over_whatever_its_owner_died_in():
    with cut_world((3, 1, 1), "mirrored") as world:
        world.look()
        assert set(POINTS) <= set(world.points["w2"])
        for point in (point for point in world.points["w2"] if point in POINTS):
            takes_over(world, "w2", point)


def test_a_step_whose_weights_are_not_whole_yet_is_told_all_the_same():
    with cut_world((2, 1, 1), "mirrored") as world:
        world.begin()
        world.strike(world.plan, "w1", at="gather")
        eventually(lambda: world.run.workers["w0"].state.committed == 1)
        world.run.workers["w0"].abort(world.generation)
        left = world.run.leaving("w0")
        assert left.committed == 1
        assert [commit.step for commit in left.commits] == [1]


@pytest.mark.parametrize("schedule", CHUNKS)
def test_a_mirror_takes_over_under_every_schedule(schedule: str):
    dice = random.Random(schedule)
    with cut_world((2, 1, 2), "mirrored", schedule=schedule) as world:
        world.look()
        for victim in dice.sample(world.plan.workers, SAMPLE):
            takes_over(world, victim, dice.choice(points_of(world, victim)))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("layout", [(2, 1, 2), (3, 1, 2), (2, 2, 2)], ids=str)
@pytest.mark.parametrize("schedule", CHUNKS)
def test_a_mirror_takes_over_at_every_point_under_every_schedule(schedule: str, layout: tuple[int, int, int]):
    with cut_world(layout, "mirrored", schedule=schedule) as world:
        world.look()
        for victim in world.plan.workers:
            assert {"reduce", "decide", "apply", "gather"} < set(points_of(world, victim))
            for point in points_of(world, victim):
                takes_over(world, victim, point)


@pytest.mark.parametrize("schedule", CHUNKS)
def test_without_a_mirror_a_piece_is_gone_with_its_holder_and_nobody_commits_without_it(schedule: str):
    dice = random.Random(schedule)
    with cut_world((2, 1, 2), "zero1", schedule=schedule) as world:
        world.look()
        for victim in dice.sample(world.plan.workers, SAMPLE):
            is_gone(world, victim, dice.choice(points_of(world, victim)))


@pytest.mark.soak
@pytest.mark.parametrize("schedule", CHUNKS)
def test_without_a_mirror_a_piece_is_gone_wherever_its_holder_died(schedule: str):
    with cut_world((2, 1, 2), "zero1", schedule=schedule) as world:
        world.look()
        for victim in world.plan.workers:
            for point in points_of(world, victim):
                is_gone(world, victim, point)


def is_gone(world: KillWorld, victim: str, point: str) -> None:
    """A kill there is no repair, and no decision came of it but one that the victim made too."""
    world.begin()
    world.strike(world.plan, victim, at=point)
    living = [worker for worker in world.plan.workers if worker != victim]
    for worker in living:
        world.run.workers[worker].abort(world.generation)
    left = {worker: world.run.leaving(worker) for worker in living}
    found = repair_plan(world.plan, reports={worker: said.work for worker, said in left.items()})
    coord = world.plan.coord_of(victim)
    assert isinstance(found, StagesLost), f"{victim} was killed at {point}"
    assert f"piece {coord.replica} of the optimizer state of stage {coord.stage}" in found.reason
    if point.split()[0] not in ("apply", "gather") and not point.startswith("decide "):
        assert {said.committed for said in left.values()} == {0}, f"{victim} was killed at {point}"
    world.bury({victim})
