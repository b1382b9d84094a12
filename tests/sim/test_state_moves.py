from dataclasses import replace

import pytest

from raymega.plan.plan import Plan, ShardOptimizer
from raymega.plan.transition import Transition
from raymega.plan.uneven import with_teams, without_teams
from raymega.sim.state_moves import SimMoves
from tests.plan.plans import make_plan
from tests.sim.scenarios import config

MOVES = SimMoves(config=config(dp=4, pp=2))


def plan(cut: ShardOptimizer) -> Plan:
    made = replace(make_plan(dp=4, pp=2, num_microbatches=8), layers=((0, 3), (3, 6)))
    return replace(made, shard_optimizer=cut)


def transition(old: Plan) -> Transition:
    return Transition(old=old, senders=old.living, node_of=dict.fromkeys(old.workers, "n0"))


@pytest.mark.parametrize(("cut", "thirds"), [("none", 3.0), ("zero1", 1.5), ("mirrored", 2.0)])
def test_moments_that_are_cut_are_held_by_pieces(cut: ShardOptimizer, thirds: float) -> None:
    parameters_bytes = MOVES.state_bytes(plan("none")) / 3
    assert MOVES.state_bytes(plan(cut)) == pytest.approx(parameters_bytes * thirds)


@pytest.mark.parametrize(("cut", "moves"), [("none", False), ("zero1", True), ("mirrored", True)])
def test_a_lost_team_changes_the_borders_of_all_pieces(cut: ShardOptimizer, moves: bool) -> None:
    left = without_teams(plan(cut), [(1, 0)])
    assert left is not None
    assert (MOVES.busiest_bytes(transition(plan(cut)), left) > 0) is moves


def test_who_takes_a_place_lacks_parameters_and_its_piece() -> None:
    whole = with_teams(plan("zero1"), {(1, 0): ("w9",)})
    assert MOVES.busiest_bytes(transition(plan("zero1")), whole) == pytest.approx(MOVES.state_bytes(whole), rel=0.05)
