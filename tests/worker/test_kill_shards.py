"""A kill at every point of a step where the optimizer state is cut: a mirror takes over, or the state is gone."""

from dataclasses import replace

import pytest
import torch

from raymega.pipeline.repair import StagesLost
from raymega.plan.repairs import repair_plan
from raymega.worker import step
from tests.worker.killing import KillWorld, kill_world

CASES = [((2, 1, 2), "w1"), ((3, 1, 1), "w2")]
POINTS = ["compute sum 1", "reduce", "reduce all_to_all 1", "decide", "decide all_gather_bytes 1", "apply", "gather"]


@pytest.mark.parametrize(("layout", "victim"), CASES, ids=str)
def test_a_mirror_takes_over_whatever_its_owner_died_in(layout, victim, monkeypatch):
    monkeypatch.setattr(step, "BUCKET_BYTES", 1024)
    with kill_world(layout, change=lambda plan: replace(plan, shard_optimizer="mirrored")) as world:
        world.look()
        points = [point for point in world.points[victim] if point in POINTS]
        assert set(points) == set(POINTS)
        for point in points:
            case = world.kill(victim, at=point)
            world.check(case)
            weights_follow(world, case.recovered.plan.living)


def weights_follow(world: KillWorld, workers: tuple[str, ...]) -> None:
    """Everybody computes with the weights of the state."""
    for worker in workers:
        for chunk in world.run.workers[worker].state.chunks.values():
            for piece in chunk.pieces:
                for rows in chunk.layouts[piece.index].rows:
                    assert torch.equal(rows.line(piece.data), rows.of(chunk.model.flat.data))


@pytest.mark.parametrize("at", ["0B1", "reduce", "apply", "gather"])
def test_without_a_mirror_a_piece_is_gone_with_its_holder_and_nobody_commits_without_it(at):
    with kill_world((2, 1, 1), change=lambda plan: replace(plan, shard_optimizer="zero1")) as world:
        world.begin()
        world.strike(world.plan, "w1", at=at)
        world.run.workers["w0"].abort(world.generation)
        left = world.run.leaving("w0")
        found = repair_plan(world.plan, reports={"w0": left.work})
        assert isinstance(found, StagesLost)
        assert "piece 1 of the optimizer state of stage 0" in found.reason
        assert left.committed == 0 or at in ("apply", "gather"), "a decision may have died with w1, or not"
