"""Smaller micro-batches: the same samples, on the same routes."""

from dataclasses import replace

import pytest

from raymega.mesh import Mesh
from raymega.plan.finer import finer, next_finer
from raymega.plan.plan import Plan
from raymega.plan.uneven import without_teams


def plan(size: int, *, table: tuple[str, ...] = ()) -> Plan:
    return Plan(
        mesh=Mesh(dp=2, pp=2, tp=1), workers=("w0", "w1", "w2", "w3"), layers=((0, 1), (1, 2)),
        routes=((0, 0), (0, 1), (1, 1)), microbatch_size=size, table=table,
    )  # fmt: skip


def test_the_batch_and_the_boxes_stay_and_the_work_is_spread_as_in_any_plan() -> None:
    old, new = plan(6), finer(plan(6), microbatch_size=2)
    assert (new.num_microbatches, new.global_batch) == (9, old.global_batch)
    assert replace(new, routes=old.routes, microbatch_size=6) == old
    assert without_teams(new, ()) == new, "or the ladder would find another plan at once"
    assert [len(new.microbatches_of(replica=r, stage=0)) for r in range(2)] == [5, 4]


@pytest.mark.parametrize(("size", "smaller"), [(8, 4), (6, 3), (9, 3), (7, 1), (1, None)])
def test_the_next_smaller_size_divides_the_present_one(size: int, smaller: int | None) -> None:
    assert next_finer(plan(size)) == smaller


def test_a_table_of_actions_is_of_so_many_microbatches() -> None:
    assert next_finer(plan(8, table=("0F0", "1F0"))) is None
