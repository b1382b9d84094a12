"""Who holds which piece of the optimizer state, before and after a loss."""

from dataclasses import replace

import pytest

from raymega.mesh import Mesh
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.repair import StagesLost
from raymega.plan.plan import Plan, ShardOptimizer, straight_routes
from raymega.plan.repairs import PlanRepair, repair_plan
from raymega.plan.shards import holders, mirrored_apart, num_pieces, pieces_of, spoken_by
from raymega.plan.uneven import without_teams


def plan_of(kind: ShardOptimizer, *, dp: int, pp: int = 1) -> Plan:
    mesh = Mesh(dp=dp, pp=pp, tp=1)
    return Plan(
        mesh=mesh, workers=tuple(f"w{rank}" for rank in range(mesh.size)), layers=tuple((s, s + 1) for s in range(pp)),
        routes=straight_routes(num_microbatches=6, mesh=mesh), microbatch_size=1, shard_optimizer=kind,
    )  # fmt: skip


def repaired(plan: Plan, *, dead: str) -> PlanRepair | StagesLost:
    reports = {worker: TeamReport(stages=(plan.coord_of(worker).stage,)) for worker in plan.living if worker != dead}
    return repair_plan(plan, reports=reports)


ROWS = [
    ("none", [(0, 1, 2)], [(0,), (0,), (0,)]),
    ("zero1", [(0,), (1,), (2,)], [(0,), (1,), (2,)]),
    ("mirrored", [(0, 1), (1, 2), (2, 0)], [(0, 2), (0, 1), (1, 2)]),
]


@pytest.mark.parametrize(("kind", "by_piece", "by_replica"), ROWS)
def test_a_piece_has_an_owner_and_where_it_is_mirrored_a_second_holder(kind, by_piece, by_replica):
    plan = plan_of(kind, dp=3)
    pieces = range(num_pieces(plan, stage=0))
    assert [holders(plan, stage=0, piece=piece) for piece in pieces] == by_piece
    assert [pieces_of(plan, replica=replica, stage=0) for replica in range(3)] == by_replica
    assert sorted(piece for r in range(3) for piece in spoken_by(plan, replica=r, stage=0)) == list(pieces)


def test_after_a_loss_the_mirror_speaks_and_the_cut_stays_until_the_state_is_laid_out_anew():
    found = repaired(plan_of("mirrored", dp=3, pp=2), dead="w2")  # replica 1, stage 0
    assert isinstance(found, PlanRepair)
    plan = found.plan
    assert plan.lost == plan.lost_since == {(1, 0)}
    assert [holders(plan, stage=0, piece=piece) for piece in range(3)] == [(0,), (2,), (2, 0)]
    assert [spoken_by(plan, replica=replica, stage=0) for replica in (0, 2)] == [(0,), (1, 2)]
    assert num_pieces(plan, stage=1) == 3
    anew = without_teams(plan, ())
    assert anew is not None
    assert anew == replace(plan, lost_since=frozenset(), routes=anew.routes)
    assert [holders(anew, stage=0, piece=piece) for piece in range(num_pieces(anew, stage=0))] == [(0, 2), (2, 0)]
    assert Plan.from_json(plan.to_json()) == plan


def test_a_piece_without_a_living_holder_comes_from_elsewhere():
    lost = repaired(plan_of("zero1", dp=3), dead="w1")
    assert isinstance(lost, StagesLost)
    assert "no living team holds piece 1 of the optimizer state of stage 0" in lost.reason
    first = repaired(plan_of("mirrored", dp=3), dead="w1")
    assert isinstance(first, PlanRepair)
    assert isinstance(repaired(first.plan, dead="w2"), StagesLost)  # it held piece 1 for the first that went
    assert isinstance(repaired(plan_of("none", dp=3), dead="w1"), PlanRepair)


def test_mirrors_lie_on_other_nodes_where_there_are_such():
    plan = plan_of("mirrored", dp=4)
    node_of = {"w0": "n0", "w1": "n0", "w2": "n1", "w3": "n1"}
    apart = mirrored_apart(plan, node_of=node_of)
    pairs = [holders(apart, stage=0, piece=piece) for piece in range(4)]
    assert all(node_of[f"w{one}"] != node_of[f"w{other}"] for one, other in pairs)
