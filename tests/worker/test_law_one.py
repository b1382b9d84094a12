"""Law 1: the plan does not occur in the result. Law 2 is held by the workers themselves, batch by batch."""

import pytest
import torch

from tests.worker.rig import LAYOUTS, relative, thread_run, tiny_config, tiny_plan


def run_layout(layout, *, steps=10, masked=False, model=None, parallelism=None, plan_fields=None, **training):
    """(reports, weights after each run) of one layout."""
    dp, tp, pp = layout
    config = tiny_config(model=model, parallelism=parallelism, **training)
    plan = tiny_plan(config, dp=dp, tp=tp, pp=pp, **(plan_fields or {}))
    with thread_run(config, num_workers=plan.mesh.size) as run:
        run.assign(plan)
        reports = run.train(plan, until=steps, masked=masked)
        return reports, run.weights(plan)


def assert_same(a, b):
    """Loss and norm step by step, weights at the end, to the tolerances of law 1."""
    for mine, other in zip(a[0], b[0], strict=True):
        limit = 1e-6 if mine.step == 1 else 1e-5
        assert mine.loss == pytest.approx(other.loss, rel=limit)
        assert mine.grad_norm == pytest.approx(other.grad_norm, rel=limit)
    for name, weight in a[1].items():
        assert relative(weight, b[1][name]) < 1e-5, name


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=str)
def test_loss_norm_and_weights_do_not_depend_on_the_layout(layout):
    assert_same(run_layout(layout), run_layout((1, 1, 1)))
