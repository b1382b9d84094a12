"""Recomputation on a cut sequence, over two stages: the team's collectives run again, and no bit changes."""

import pytest

from tests.worker.killing import SMALL
from tests.worker.rig import relative, thread_run, tiny_config, tiny_plan


def trained(recompute: object) -> tuple[list[tuple[float, float]], dict]:
    config = tiny_config(
        model={**SMALL, "num_layers": 4, "dropout": 0.1}, steps=2, lr=0.02, batch_size=4,
        parallelism={"sequence_parallel": True, "recompute": recompute},
    )  # fmt: skip
    plan = tiny_plan(config, dp=1, tp=2, pp=2, sequence_parallel=True)
    with thread_run(config, num_workers=4) as run:
        run.assign(plan)
        reports = run.train(plan, until=2)
        return [(report.loss, report.grad_norm) for report in reports], run.weights(plan)


@pytest.mark.parametrize("recompute", ["selective", "full", [1, 2]], ids=str)
def test_what_is_recomputed_changes_no_bit(recompute):
    (told, weights), (expected, exact) = trained(recompute), trained("none")
    assert told == expected
    assert all(relative(weights[name], exact[name]) == 0 for name in exact)
