"""An overflow on one rank skips the step on all, and nothing but the loss scale and the data position moves."""

import pytest
import torch

from raymega.train.lr_schedule import lr_at
from raymega.worker.interface import StepReport
from raymega.worker.state import TrainState
from tests.worker.killing import SMALL
from tests.worker.rig import ThreadRun, thread_run, tiny_config, tiny_plan

FP16 = {"precision": "fp16", "optimizer": "adamw", "lr": 1e-3, "lr_schedule": "linear", "warmup_samples": 64}


@pytest.fixture
def spoil(monkeypatch):
    """Make (worker, committed steps) pairs spoil one gradient there."""
    found: set[tuple[str, int]] = set()
    real = TrainState.zero_grad

    def zero_grad(self):
        real(self)
        if (self.team.spec.members[self.team.rank], self.committed) in found:
            next(iter(self.chunks.values())).model.params[-1].grad.view(-1)[0] = torch.inf

    monkeypatch.setattr(TrainState, "zero_grad", zero_grad)
    return found


def held(run: ThreadRun) -> list[torch.Tensor]:
    return [item.tensor.clone() for worker in run.workers.values() for item in worker.state.items()]


@pytest.mark.parametrize("layout", [(1, 1, 2), (1, 2, 1), (2, 1, 1)], ids=str)
def test_three_overflows_in_twenty_steps_delay_the_rate_and_not_the_data(layout, spoil):
    dp, tp, pp = layout
    spoil |= {("w1", 2), ("w0", 7), ("w1", 8)}
    config = tiny_config(model={**SMALL, "num_layers": 2}, steps=20, batch_size=4, micro_batch_size=2, **FP16)
    plan = tiny_plan(config, dp=dp, tp=tp, pp=pp)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        run.train(plan, until=7)
        before = held(run)
        run.train(plan, first=7, until=9)  # both overflow
        assert all(torch.equal(old, new) for old, new in zip(before, held(run), strict=True))
        run.train(plan, first=9, until=20)
        reports = [report for _, report in run.reports if isinstance(report, StepReport)]
        states = [worker.state for worker in run.workers.values()]
    assert [report.step for report in reports if report.skipped] == [3, 8, 9]
    trained = [report for report in reports if not report.skipped]
    assert [r.lr for r in trained] == [lr_at(config.training, samples=4 * n) for n in range(1, 18)]
    assert [r.loss_scale for r in reports] == [65536.0] * 8 + [32768.0] + [16384.0] * 11
    assert {(s.committed, s.skipped, s.scale.scale, s.counters.updates) for s in states} == {(20, 3, 16384.0, 17)}


def test_all_eight_ranks_skip_what_overflowed_on_one_and_say_whose_gradient_it_was(spoil):
    spoil.add(("w5", 1))
    config = tiny_config(model={**SMALL, "num_layers": 2}, steps=3, batch_size=4, micro_batch_size=2, **FP16)
    plan = tiny_plan(config, dp=2, tp=2, pp=2)
    with thread_run(config, num_workers=8) as run:
        run.assign(plan)
        run.train(plan, until=1)
        before = held(run)
        (report,) = run.train(plan, first=1, until=2)
        assert all(torch.equal(old, new) for old, new in zip(before, held(run), strict=True))
        (after,) = run.train(plan, first=2, until=3)
        scales = {worker.state.scale for worker in run.workers.values()}
    assert (report.skipped, report.overflow, after.skipped) == (True, "scaled", False)
    assert "a gradient of step 1, first that of layers.0.mlp_norm.weight on rank" in report.reason
    assert len(scales) == 1


def test_scaled_gradients_train_as_those_that_are_not(spoil):
    runs = []
    for scale in (1.0, 1024.0):
        config = tiny_config(model={**SMALL, "num_layers": 2}, steps=3, clip_grad=0.5, lr=0.02, batch_size=4,
                             precision="fp16", loss_scale=scale)  # fmt: skip
        plan = tiny_plan(config, dp=1, tp=1, pp=2)
        with thread_run(config, num_workers=2) as run:
            run.assign(plan)
            runs.append(run.train(plan, until=3))
    assert [r.loss for r in runs[1]] == pytest.approx([r.loss for r in runs[0]], rel=1e-5)
    assert [r.grad_norm for r in runs[1]] == pytest.approx([r.grad_norm for r in runs[0]], rel=1e-3)
