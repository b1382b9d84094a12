"""Replicas that send each other fewer bits: equal bits on all, nothing lost over the steps, repaired and resharded."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from raymega.comm.local import WorkerKilled
from raymega.errors import RaymegaBug
from raymega.layout.certificate import Certified
from raymega.plan.plan import Plan
from raymega.worker.interface import ShardsSaved
from raymega.worker.state import TrainState
from tests.worker.killing import SMALL
from tests.worker.moving import move
from tests.worker.rig import LIMIT_S, ThreadRun, relative, run_layout, thread_run, tiny_config, tiny_plan

MODEL = {**SMALL, "num_layers": 2, "num_key_value_heads": 1, "tie_embeddings": True}
CALM = {"lr": 0.02, "batch_size": 8, "micro_batch_size": 1}
LEAST = {"bf16": 0.5, "fp16": 0.5, "int8": 0.27}
"""Of the bytes of a plain sum."""


@contextmanager
def coded(
    codec: str, *, dp: int = 2, tp: int = 1, pp: int = 1, workers: int = 0, tmp_path: object = "", **training: object
) -> Iterator[tuple[ThreadRun, Plan]]:
    config = tiny_config(model=MODEL, parallelism={"grad_compression": codec}, **{**CALM, **training})
    plan = tiny_plan(config, dp=dp, tp=tp, pp=pp)
    with thread_run(config, num_workers=workers or plan.mesh.size, tmp_path=tmp_path) as run:
        run.assign(plan)
        yield run, plan


def grant(run: ThreadRun, plan: Plan, *, first: int, until: int, full_at: tuple[int, ...] = ()) -> list:
    for name in plan.living:
        run.workers[name].orders.grant(1, 0, (), (), full_at)
    return run.train(plan, first=first, until=until)


@pytest.mark.parametrize(("layout", "codec"), [((2, 1, 1), "fp16"), ((3, 2, 1), "int8"), ((2, 1, 2), "bf16")], ids=str)
def test_replicas_and_shards_keep_equal_bits_and_train_as_without(layout, codec) -> None:
    dp, tp, pp = layout
    plain = run_layout(layout, model=tuple(MODEL.items()), steps=6, **CALM)
    with coded(codec, dp=dp, tp=tp, pp=pp, steps=6) as (run, plan):
        reports = run.train(plan, until=6)
        weights = run.weights(plan)  # which checks that all who hold a box hold the same bits
    assert [r.loss for r in reports] == pytest.approx([r.loss for r in plain.reports], rel=2e-3)
    assert any(relative(weight, plain.weights[name]) > 0 for name, weight in weights.items())


def held(run: ThreadRun, name: str) -> torch.Tensor:
    (chunk,) = run.workers[name].state.chunks.values()
    return chunk.coding.unsent.held


def summed(run: ThreadRun, plan: Plan, *, steps: int, full_at: tuple[int, ...] = ()) -> torch.Tensor:
    """All reduced gradients of the steps together; weights do not change, since the rate is zero."""
    total = 0.0
    for step in range(steps):
        grant(run, plan, first=step, until=step + 1, full_at=full_at)
        (chunk,) = run.workers["w0"].state.chunks.values()
        total = total + chunk.reduced_grad.double()
    return total


@pytest.mark.parametrize("codec", ["bf16", "int8"])
def test_what_was_summed_and_what_is_left_is_the_sum_of_all_gradients(codec: str) -> None:
    with coded("none", steps=5, lr=0.0) as (run, plan):
        true = summed(run, plan, steps=5)
    with coded(codec, steps=5, lr=0.0) as (run, plan):
        sent = summed(run, plan, steps=4)
        left = held(run, "w0").double() + held(run, "w1").double()
        assert run.workers["w0"].state.unsent_norm > 0
        assert not torch.equal(held(run, "w0"), held(run, "w1")), "each has its own"
        grant(run, plan, first=4, until=5, full_at=(5,))
        (chunk,) = run.workers["w0"].state.chunks.values()
        assert relative(sent + chunk.reduced_grad.double(), true) < 1e-6
        assert not held(run, "w0").any()
        assert run.workers["w1"].state.unsent_norm == 0.0
    assert relative(left, true) > 1e-6


@pytest.mark.parametrize("codec", ["bf16", "int8"])
def test_fewer_bytes_travel(codec: str) -> None:
    sent = {}
    for kind, op in (("none", "all_reduce"), (codec, "all_gather")):
        with coded(kind, steps=2) as (run, plan):
            run.train(plan, until=2)
            sent[kind] = run.workers["w0"]._generation._fabric.traffic.num_bytes(op, group="/dp/")
    print(f"{codec}: {sent[codec]:,} bytes of a worker in two steps, uncoded {sent['none']:,}")
    assert sent[codec] < LEAST[codec] * 1.1 * sent["none"]


def test_a_sum_that_broke_is_made_again_from_what_it_was_made_of() -> None:
    plain = run_layout((3, 1, 1), model=tuple(MODEL.items()), steps=4, **CALM)
    with coded("int8", dp=3, steps=4) as (run, plan):
        reports = run.train(plan, until=2)
        before = {name: held(run, name).clone() for name in plan.workers[:2]}
        died = threading.Event()

        def kill(worker: str, key: str, op: str) -> None:
            if (worker, op) == ("w2", "all_gather") and not died.is_set():
                run.hub.kill("w2")
                died.set()
                raise WorkerKilled(worker)

        run.hub.on_op = kill
        run.start(plan, first=2, until=4)
        assert died.wait(LIMIT_S)
        found = run.recover(plan, dead={"w2"}, generation=2)
        assert all(torch.equal(held(run, name), value) for name, value in before.items())
        reports += run.train(found.plan, generation=2, first=2, until=4)
        run.weights(found.plan)
    assert [r.loss for r in reports] == pytest.approx([r.loss for r in plain.reports], rel=5e-3)


def test_state_is_saved_and_moved_only_after_a_full_sum() -> None:
    with coded("int8", steps=4, workers=3) as (run, plan):
        run.train(plan, until=1)
        with pytest.raises(RaymegaBug, match="summed with fewer bits right before a save"):
            run.workers["w0"].state.check_sent(before="before a save")
        grant(run, plan, first=1, until=2, full_at=(2,))
        new = tiny_plan(run.config, dp=3, tp=1, pp=1)
        found = move(run, old=plan, new=new, generation=2, step=2)
        assert isinstance(found.verdict, Certified)
        run.train(new, generation=2, first=2, until=4)
        run.weights(new)
        assert all(run.workers[name].state.unsent_norm > 0 for name in new.workers)


@pytest.fixture
def second_step_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TrainState.zero_grad

    def zero_grad(self):
        real(self)
        if (self.team.spec.members[self.team.rank], self.committed) == ("w1", 1):
            next(iter(self.chunks.values())).model.params[0].grad.view(-1)[0] = torch.inf

    monkeypatch.setattr(TrainState, "zero_grad", zero_grad)


@pytest.mark.usefixtures("second_step_overflows")
def test_a_skipped_step_leaves_what_is_unsent_as_it_was() -> None:
    with coded("int8", steps=3) as (run, plan):
        run.train(plan, until=1)
        before = {name: held(run, name).clone() for name in plan.workers}
        (report,) = run.train(plan, first=1, until=2)
        assert report.skipped
        assert all(torch.equal(held(run, name), value) for name, value in before.items())
        assert not run.train(plan, first=2, until=3)[0].skipped


@pytest.mark.usefixtures("second_step_overflows")
def test_a_step_that_was_to_be_sent_in_full_and_is_skipped_holds_up_no_save_and_no_move(tmp_path) -> None:
    with coded("int8", steps=4, workers=3, precision="fp16", tmp_path=tmp_path) as (run, plan):
        run.train(plan, until=1)
        before = held(run, "w1").clone()
        (report,) = run.train(plan, first=1, until=2, save_at=(2,))
        assert report.skipped
        assert "what coded sums have left, of norm 0.0" in report.reason
        assert torch.equal(held(run, "w1"), before)
        run.wait_for(ShardsSaved, workers=plan.living, generation=1)
        new = tiny_plan(run.config, dp=3, tp=1, pp=1)
        assert isinstance(move(run, old=plan, new=new, generation=2, step=2).verdict, Certified)
        assert torch.equal(held(run, "w1"), before), "who goes on with the same chunk sends it later"
        assert not held(run, "w2").any()
        assert not any(report.skipped for report in run.train(new, generation=2, first=2, until=4))
        run.weights(new)
