"""Masters and moments are cut over the replicas: the same numbers, the same bytes on the wire, less of them held."""

from dataclasses import replace

import pytest
import torch

from raymega.worker import step
from tests.worker.rig import ONE, Result, relative, run_layout, thread_run, tiny_config, tiny_plan
from tests.worker.test_law_one import assert_same, one_worker
from tests.worker.test_resume import resumed_on, saved_by

ADAM = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "clip_grad": 1.0, "eps": 1e-5}
"""A smaller eps scales the rounding of gradients near zero to full steps, whether the state is cut or not."""
SGD = {"lr": 0.02}
MODEL = (("num_layers", 4), ("num_key_value_heads", 1))


def sharded(layout: tuple[int, int, int], kind: str, **rest: object) -> Result:
    return run_layout(layout, change=lambda plan: {"shard_optimizer": kind}, **rest)


@pytest.mark.parametrize("kind", ["zero1", "mirrored"])
@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adamw"])
@pytest.mark.parametrize("layout", [ONE, (2, 1, 1), (3, 1, 2), (2, 2, 1)], ids=str)
def test_numbers_are_those_of_one_worker(layout, optimizer, kind):
    rest = {"steps": 4, "batch_size": 12, "model": MODEL, **optimizer}
    assert_same(sharded(layout, kind, **rest), one_worker(**rest))


NARROW = {  # keys of two rows, an embedding of 997
    "hidden_size": 12, "num_attention_heads": 2, "num_key_value_heads": 1, "head_size": 2,
    "ffn_size": 10, "vocab_size": 997,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["zero1", "mirrored"])
def test_a_replica_may_have_no_row_of_a_small_parameter(kind):
    model = tuple({**NARROW, "num_layers": 2}.items())
    rest = {"steps": 2, "batch_size": 14, "model": model, **ADAM}
    assert_same(sharded((7, 1, 1), kind, **rest), one_worker(**rest))


@pytest.mark.parametrize(
    "rest",
    [
        {"schedule": "zb-h1", "model": (*MODEL, ("tie_embeddings", True))},
        {"schedule": "zb-v", "chunks": 2, "model": (*MODEL, ("tie_embeddings", True))},
        {"schedule": "interleaved", "chunks": 2, "recompute": "full", "model": MODEL, "precision": "bf16"},
        {"precision": "fp16", "model": (*MODEL, ("kind", "gpt2"), ("num_key_value_heads", None))},
    ],
    ids=["zb-h1", "zb-v", "interleaved bf16", "fp16"],
)
def test_a_cut_state_trains_as_a_whole_one(rest, monkeypatch):
    monkeypatch.setattr(step, "BUCKET_BYTES", 8192)
    rest = {"steps": 3, **ADAM, **rest}
    limit = 1e-5 if rest.get("precision", "fp32") == "fp32" else 1e-2
    whole, cut = run_layout((2, 1, 2), **rest), sharded((2, 1, 2), "zero1", **rest)
    assert [r.loss for r in cut.reports] == pytest.approx([r.loss for r in whole.reports], rel=limit)
    assert [r.grad_norm for r in cut.reports] == pytest.approx([r.grad_norm for r in whole.reports], rel=limit)
    assert max(relative(cut.weights[name], weight) for name, weight in whole.weights.items()) < limit


@pytest.mark.parametrize(("kind", "mirrors"), [("zero1", 0), ("mirrored", 1)])
def test_a_step_sends_each_gradient_once_and_each_weight_once(kind, mirrors):
    config = tiny_config(model=dict(MODEL))
    plan = replace(tiny_plan(config, dp=2, tp=1, pp=1), shard_optimizer=kind)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        run.train(plan, until=1)
        flat = run.workers["w0"].state.chunks[0].model.flat
        traffic = run.workers["w0"]._generation._fabric.traffic
        (piece, *_) = run.workers["w0"].state.chunks[0].pieces
    elements = sum(param.box.num_elements for param in flat.params)
    assert traffic.num_bytes("all_to_all", group="/dp/") == 4 * elements + mirrors * 4 * piece.data.numel()
    assert 4 * elements / 2 <= traffic.num_bytes("all_gather", group="/dp/") < 4 * elements / 2 * 1.05
    assert traffic.num_bytes("all_reduce", group="/dp/") == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_worker_holds_masters_and_moments_of_its_piece_and_whole_weights(precision):
    config = tiny_config(model=dict(MODEL), precision=precision, **ADAM)
    plan = replace(tiny_plan(config, dp=4, tp=1, pp=1), shard_optimizer="zero1")
    with thread_run(config, num_workers=4) as run:
        run.assign(plan)
        run.train(plan, until=1)
        chunks = [worker.state.chunks[0] for worker in run.workers.values()]
        whole = run.weights(plan)
    elements = chunks[0].model.flat.grad.numel()
    for chunk in chunks:
        (piece,) = chunk.pieces
        held = [piece.data, *piece.optimizer.moments.values()]
        assert all(len(tensor) < elements / 4 * 1.05 for tensor in held)
        assert (chunk.model.flat.data.numel() < elements / 20) == (precision == "bf16")
        for param in chunk.model.params:
            assert torch.equal(param.data, whole[param.spec.name].to(param.data.dtype))


@pytest.mark.parametrize(("before", "after"), [("zero1", "none"), ("none", "mirrored"), ("mirrored", "zero1")])
def test_a_checkpoint_of_one_cut_is_that_of_any(before, after, tmp_path):
    uri, reports, weights = saved_by((2, 1, 2), tmp_path, shard_optimizer=before)
    mine, found = resumed_on((3, 2, 1), uri, tmp_path, shard_optimizer=after)
    assert [r.loss for r in mine] == pytest.approx([r.loss for r in reports], rel=1e-5)
    assert max(relative(found[name], weight) for name, weight in weights.items()) < 1e-5


def test_an_overflow_on_one_rank_leaves_every_piece_as_it_was():
    config = tiny_config(model=dict(MODEL), precision="fp16", **ADAM)
    plan = replace(tiny_plan(config, dp=2, tp=1, pp=2), shard_optimizer="mirrored")
    with thread_run(config, num_workers=4) as run:
        run.assign(plan)
        run.train(plan, until=1)
        before = run.weights(plan, "exp_avg")
        run.workers["w3"].state.chunks[1].model.params[-1].data.fill_(torch.inf)
        (report,) = run.train(plan, first=1, until=2)
        assert report.skipped
        assert all(torch.equal(run.weights(plan, "exp_avg")[name], moment) for name, moment in before.items())
