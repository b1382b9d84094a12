"""A step commits everywhere or nowhere, whatever breaks, and whenever."""

import gc
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Kind
from raymega.worker.interface import GenerationBroken, WorkerFailed
from tests.worker.rig import LIMIT_S, batch_of, relative, thread_run, tiny_config, tiny_plan

WITHIN_S = 1.0


@pytest.mark.parametrize("op", ["recv", "send", "all_reduce", "all_gather_bytes"])
def test_a_death_in_any_phase_wakes_all_survivors_and_keeps_their_state(op):
    config = tiny_config()
    plan = tiny_plan(config, dp=2, tp=1, pp=2)
    with thread_run(config, num_workers=4) as run:
        run.assign(plan)
        run.train(plan, until=1)
        before = run.weights(plan)
        died = threading.Event()

        def on_op(worker: str, key: str, name: str) -> None:
            if worker == "w2" and name == op and not died.is_set():
                died.set()
                run.hub.kill("w2")

        run.hub.on_op = on_op
        run.start(plan, until=3)
        assert died.wait(LIMIT_S)
        began = time.monotonic()
        left = [run.leaving(name) for name in ("w0", "w1", "w3")]
        assert time.monotonic() - began < WITHIN_S
        assert {report.committed for report in left} == {1}
        assert all(relative(weight, before[name]) == 0 for name, weight in run.weights(plan).items())


def test_survivors_of_a_death_go_on_in_the_next_generation_from_the_state_they_kept():
    config = tiny_config()
    plan, whole = tiny_plan(config, dp=2, tp=1, pp=1), tiny_plan(config, dp=1, tp=1, pp=1)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        run.train(plan, until=2)
        run.hub.kill("w1")
        run.workers["w0"].abort(1)
        assert run.leaving("w0").committed == 2
        run.assign(whole, generation=2, step=2, keep_state=True)
        reports = run.train(whole, generation=2, first=2, until=4)
    with thread_run(config, num_workers=1) as alone:
        alone.assign(whole)
        assert [r.loss for r in reports] == pytest.approx([r.loss for r in alone.train(whole, until=4)[2:]], rel=1e-5)


def test_a_decision_that_comes_after_the_promise_has_no_effect():
    config = tiny_config()
    plan = tiny_plan(config, dp=2, tp=1, pp=1)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        gathered = threading.Event()

        def on_op(worker: str, key: str, name: str) -> None:
            if worker == "w1" and name == "all_gather_bytes":
                run.hub.hold("w1")  # it takes part in the exchange, and stops before it learns the outcome
                gathered.set()

        run.hub.on_op = on_op
        before = run.weights(plan)
        run.start(plan, until=1)
        assert gathered.wait(LIMIT_S)
        assert run.workers["w1"].abort(1) is None
        run.hub.release("w1")
        assert run.leaving("w1").committed == 0
        assert run.workers["w1"].state.committed == 0
        first = run.workers["w1"].state.items()
        assert all(torch.equal(item.tensor, before[item.name]) for item in first)


def test_the_answer_to_an_abort_carries_what_was_decided():
    config = tiny_config()
    plan = tiny_plan(config, dp=1, tp=1, pp=1)
    with thread_run(config, num_workers=1) as run:
        run.assign(plan)
        run.train(plan, until=2)
        decided = run.workers["w0"].abort(1)
        assert (decided.step, decided.generation) == (2, 1)


def test_orders_of_an_older_generation_have_no_effect():
    config = tiny_config()
    plan = tiny_plan(config, dp=1, tp=1, pp=1)
    with thread_run(config, num_workers=1) as run:
        worker = run.workers["w0"]
        run.assign(plan, generation=5)
        worker.feed(4, (batch_of(config, 0),))
        worker.grant(4, 10)
        assert len(worker.batches) == 0
        assert worker.orders.next_order(5 - 1).generation == 5
        assert run.train(plan, generation=5, until=1)[0].generation == 5


def test_samples_out_of_order_never_train():
    config = tiny_config()
    plan = tiny_plan(config, dp=1, tp=1, pp=1)
    with thread_run(config, num_workers=1) as run:
        run.assign(plan)
        shifted = replace(batch_of(config, 1), step=0, after_step=0)
        run.workers["w0"].feed(1, (shifted,))
        run.workers["w0"].grant(1, 1)
        with pytest.raises(RaymegaBug, match="it has those from 0 on"):
            run.wait_for(GenerationBroken, workers=("w0",), generation=1)
        assert run.workers["w0"].state.committed == 0


def test_a_lost_backward_commits_nowhere(monkeypatch):
    config = tiny_config()
    plan = tiny_plan(config, dp=2, tp=1, pp=2)
    with thread_run(config, num_workers=4) as run:
        run.assign(plan)
        record = run.workers["w3"]._generation._step.executor._run  # the last stage of replica 1 forgets one

        def forgetful(program, batch, **kwargs):
            record(program, batch, **kwargs)
            ledger = kwargs["work"].ledger
            ledger._done = dict.fromkeys(ledger.facts[:-1])
            assert any(a.kind is Kind.B for a in ledger.facts)

        monkeypatch.setattr(run.workers["w3"]._generation._step.executor, "_run", forgetful)
        run.start(plan, until=1)
        (failed,) = run.wait_for(WorkerFailed, workers=("w0",), generation=1)
        assert isinstance(failed.error, RaymegaBug)
        assert "work hash" in str(failed.error)
        assert {worker.state.committed for worker in run.workers.values()} == {0}


def test_one_infinite_element_skips_the_step_everywhere_and_delays_the_rate():
    config = tiny_config(lr_schedule="linear", steps=4, optimizer="adamw")
    plan = tiny_plan(config, dp=2, tp=2, pp=2)
    with thread_run(config, num_workers=8) as run:
        run.assign(plan)
        first = run.train(plan, until=1)
        before = [run.weights(plan, kind) for kind in ("param", "exp_avg", "exp_avg_sq")]

        def on_op(worker: str, key: str, name: str) -> None:
            if worker == "w5" and "/dp/" in key and name == "all_reduce":
                (chunk,) = run.workers["w5"].state.chunks.values()
                chunk.reduced[0] = torch.inf

        run.hub.on_op = on_op
        skipped = run.train(plan, first=1, until=2)
        run.hub.on_op = None
        assert skipped[0].skipped
        assert skipped[0].lr == 0
        for kind, old in zip(("param", "exp_avg", "exp_avg_sq"), before, strict=True):
            assert all(torch.equal(new, old[name]) for name, new in run.weights(plan, kind).items())
        third = run.train(plan, first=2, until=3)
        assert third[0].lr == pytest.approx(config.training.lr * (1 - 2 / 4))
        assert first[0].lr == pytest.approx(config.training.lr * (1 - 1 / 4))


def test_memory_does_not_grow_from_step_to_step():
    config = tiny_config(model={"num_layers": 2}, steps=60)
    plan = tiny_plan(config, dp=1, tp=1, pp=2)

    def alive() -> int:
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        with thread_run(config, num_workers=2) as run:
            run.assign(plan)
            run.train(plan, until=10)
            early = alive()
            run.train(plan, first=10, until=60)
            assert alive() <= early
    finally:
        gc.enable()


def test_a_batch_that_comes_twice_or_in_pieces_trains_once():
    config = tiny_config()
    plan = tiny_plan(config, dp=1, tp=1, pp=1)
    with thread_run(config, num_workers=1) as run:
        run.assign(plan)
        batch = batch_of(config, 0)
        pieces = [replace(batch, microbatches={m: rows}) for m, rows in batch.microbatches.items()]
        for piece in (*reversed(pieces), *pieces, batch):
            run.workers["w0"].feed(1, (piece,))
        again = run.train(plan, until=1)
    with thread_run(config, num_workers=1) as other:
        other.assign(plan)
        assert other.train(plan, until=1)[0].loss == again[0].loss
    assert np.array_equal(batch.microbatches[0].samples, [0, 1])


def test_survivors_tell_the_steps_that_the_dead_reporter_told_nobody_of():
    config = tiny_config(model={"num_layers": 3}, steps=3)
    plan = tiny_plan(config, dp=2, tp=1, pp=1)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        told = run.train(plan, until=2)
        run.workers["w1"].abort(1)
        left = run.leaving("w1")
    assert [(c.step, c.loss, c.facts) for c in left.commits] == [(r.step, r.loss, r.facts) for r in told]
    assert (left.committed, left.decided_in, left.decided.facts) == (2, 1, told[-1].facts)
