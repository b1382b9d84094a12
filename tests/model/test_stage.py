import pytest
import torch

from raymega.model.stage import build_stage
from raymega.train.grad_norm import sum_of_squares
from raymega.train.optimizer import build_optimizer
from tests.model.rig import (
    build_shard,
    farthest,
    on_counted_shards,
    on_shards,
    one_step,
    rows,
    tiny,
    whole,
)

LAW_STEP_1, LAW_STEP_10 = 1e-6, 1e-5
GRADIENT = 5e-6  # law 1 is about loss, norm and weights; a gradient alone is a sum of cancelling terms of 6e-8 each

KINDS = [
    {"kind": "llama"},
    {"kind": "llama", "num_key_value_heads": 1, "qk_norm": True, "tie_embeddings": True},
    {"kind": "llama", "num_key_value_heads": 2, "dropout": 0.1},
    {"kind": "gpt2", "num_key_value_heads": None, "tie_embeddings": True},
]


def norm(grads):
    return sum(grad.double().square().sum() for grad in grads.values()).sqrt().item()


@pytest.mark.parametrize("model", KINDS, ids=str)
@pytest.mark.parametrize(("tp", "pp", "sequence_parallel"), [(2, 1, False), (4, 2, True), (1, 2, False), (4, 1, False)])
def test_the_layout_does_not_occur_in_the_result(model, tp, pp, sequence_parallel):
    model = {**model, "num_layers": 4}
    want = one_step(tiny(**model), rows(3))
    got = one_step(tiny(**model, sequence_parallel=sequence_parallel), rows(3), tp=tp, pp=pp)
    assert got.loss == pytest.approx(want.loss, rel=LAW_STEP_1)
    assert norm(got.grads) == pytest.approx(norm(want.grads), rel=LAW_STEP_1)
    assert farthest(got.grads, want.grads) < (GRADIENT, "")


@pytest.mark.parametrize("model", KINDS, ids=str)
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (4, 2)])
def test_counted_ranges_hold_every_gradient_once(model, tp, pp):
    model = {**model, "num_layers": 4}

    def body(group):
        shard = build_shard(tiny(**model, sequence_parallel=True), group=group, pp=pp)
        shard.step(rows(3))
        flats = shard.reduced()
        ranges = [stage.flat.ranges(counted=True) for stage in shard.stages]
        return sum(sum_of_squares(flat, ranges=r) for flat, r in zip(flats, ranges, strict=True))

    want = norm(one_step(tiny(**model), rows(3)).grads)
    assert sum(on_shards(tp, body)) ** 0.5 == pytest.approx(want, rel=LAW_STEP_1)


def test_the_norm_moves_when_any_shard_moves():
    def body(group, loud):
        shard = build_shard(tiny(num_layers=2), group=group, pp=1)
        shard.step(rows(1))
        stage = shard.stages[0]
        if group.rank == loud:
            stage.flat.param("layers.1.mlp.down").grad.mul_(10)
        return sum_of_squares(stage.flat.grad, ranges=stage.flat.ranges(counted=True))

    quiet, *loud = (sum(on_shards(2, lambda group, n=n: body(group, n))) for n in (None, 0, 1))
    assert min(loud) > 1.1 * quiet


def train(config, *, tp, pp, steps, lr=0.01, optimizer="adamw"):
    """Whole weights after `steps`, and each shard's, by stage."""
    training = config.training.model_copy(update={"optimizer": optimizer})

    def body(group):
        shard = build_shard(config, group=group, pp=pp)
        stages = shard.stages
        optimizers = [build_optimizer(training, data=s.flat.data, num_decayed=s.flat.num_decayed) for s in stages]
        for step in range(steps):
            for stage in stages:
                stage.flat.zero_grad()
            shard.step(rows(2, seed=step), step=step)
            for one, reduced in zip(optimizers, shard.reduced(), strict=True):
                one.apply(reduced, lr=lr, clip=1.0)
        return shard, shard.named([stage.flat.data for stage in stages])

    results = on_shards(tp, body)
    return whole([named for _, named in results]), [shard for shard, _ in results]


@pytest.mark.parametrize(("tp", "pp"), [(1, 2), (1, 4), (2, 2)])
def test_tied_embeddings_stay_equal_to_the_bit_and_learn_both_uses(tp, pp):
    config = tiny(tie_embeddings=True, num_layers=4)
    want, _ = train(config, tp=1, pp=1, steps=1, lr=0.1, optimizer="sgd")
    got, _ = train(config, tp=tp, pp=pp, steps=1, lr=0.1, optimizer="sgd")
    assert farthest(got, want) < (LAW_STEP_1, "")
    _, shards = train(config, tp=tp, pp=pp, steps=5)
    for shard in shards:
        ends = [stage.tied for stage in (shard.stages[0], shard.stages[-1])]
        assert torch.equal(ends[0].data, ends[1].data)
        assert [end.counted for end in ends] == [True, False]


@pytest.mark.parametrize(("tp", "kv_heads", "steps"), [(2, 1, 100), (4, 2, 10)])
def test_replicas_of_kv_heads_and_head_norms_stay_equal(tp, kv_heads, steps):
    _, shards = train(narrow(kv_heads), tp=tp, pp=1, steps=steps)
    for name in ("wk", "wv", "q_norm", "k_norm"):
        copies = [shard.stages[0].flat.param(f"layers.0.attn.{name}") for shard in shards]
        by_box = {copy.box: copy.data for copy in copies}
        assert len(by_box) < tp
        assert all(torch.equal(copy.data, by_box[copy.box]) for copy in copies)


@pytest.mark.parametrize(("tp", "kv_heads"), [(2, 1), (4, 1), (4, 2)])
def test_ten_steps_with_replicated_kv_heads_equal_the_whole(tp, kv_heads):
    want, _ = train(narrow(kv_heads), tp=1, pp=1, steps=10, lr=0.1, optimizer="sgd")
    got, _ = train(narrow(kv_heads), tp=tp, pp=1, steps=10, lr=0.1, optimizer="sgd")
    assert farthest(got, want) < (LAW_STEP_10, "")


def narrow(kv_heads):
    return tiny(hidden_size=32, num_attention_heads=4, num_key_value_heads=kv_heads, head_size=8, ffn_size=48,
                num_layers=1, qk_norm=True)  # fmt: skip


def test_one_sgd_step_gives_the_same_weights_on_every_layout():
    config = tiny(num_layers=4)
    want, _ = train(config, tp=1, pp=1, steps=1, lr=0.1, optimizer="sgd")
    for tp, pp in [(2, 1), (2, 2), (4, 1)]:
        got, _ = train(config, tp=tp, pp=pp, steps=1, lr=0.1, optimizer="sgd")
        assert farthest(got, want) < (LAW_STEP_1, "")


def test_padding_is_never_trained():
    _, shards = train(tiny(num_layers=1), tp=4, pp=1, steps=3)
    for shard in shards:
        flat = shard.stages[0].flat
        for name in ("embed.tokens", "head.out"):
            param = flat.param(name)
            allocated = flat.data[param.start : param.end].view(param.shape)
            assert param.shape[0] > param.box.sizes[0]
            assert not allocated[param.box.sizes[0] :].any()


def test_microbatches_of_other_lengths_add_to_the_same_accumulator():
    (shard,) = on_shards(1, lambda group: build_shard(tiny(num_layers=2), group=group, pp=1))
    total = {}
    for ids in (rows(2), rows(1, seq_len=7), rows(3, seq_len=24, seed=2)):
        shard.step(ids, scale=1.0)
        (alone,) = on_shards(1, lambda group: build_shard(tiny(num_layers=2), group=group, pp=1))
        alone.step(ids, scale=1.0)
        for name, (_, grad, _) in alone.named([alone.stages[0].flat.grad]).items():
            total[name] = total.get(name, 0) + grad
    got = {name: grad for name, (_, grad, _) in shard.named([shard.stages[0].flat.grad]).items()}
    assert farthest(got, total) < (LAW_STEP_1, "")


def test_eight_microbatches_weigh_as_one_batch_of_eight():
    def gradient(pp, pieces):
        (shard,) = on_shards(1, lambda group: build_shard(tiny(num_layers=2), group=group, pp=pp))
        for piece in rows(8).chunk(pieces):
            shard.step(piece, scale=1.0 / (8 * 24))
        return whole([shard.named([stage.flat.grad for stage in shard.stages])])

    want = gradient(1, 1)
    assert farthest(gradient(1, 8), want) < (GRADIENT, "")
    assert farthest(gradient(2, 8), want) < (GRADIENT, "")


def test_any_cut_of_masked_samples_gives_the_loss_of_all_tokens():
    mask = torch.rand(4, 24, generator=torch.Generator().manual_seed(1)) < 0.4
    mask[2] = False
    scale = 1.0 / mask.sum().item()

    def outcome(pieces):
        (shard,) = on_shards(1, lambda group: build_shard(tiny(num_layers=2), group=group, pp=1))
        for ids, part in zip(rows(4).chunk(pieces), mask.chunk(pieces), strict=True):
            shard.step(ids, mask=part, scale=scale)
        return shard.loss * scale, whole([shard.named([shard.stages[0].flat.grad])])

    loss, grads = outcome(1)
    for pieces in (2, 4):
        got_loss, got = outcome(pieces)
        assert got_loss == pytest.approx(loss, rel=LAW_STEP_1)
        assert farthest(got, grads) < (GRADIENT, "")


def saved_bytes(config, tp):
    """Bytes that blocks keep for backward, each storage once; parameters left out."""

    def body(group):
        stage = build_stage(config, layers=(1, 3), first=False, last=False, team=group, seed=1)
        kept = {}

        def keep(x):
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage()  # held, so that no address comes twice
            return x

        x = torch.randn(stage.boundary_shape(2, 24)).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            stage.forward(x, None)
        return sum(storage.nbytes() for at, storage in kept.items() if at != stage.flat.data.data_ptr())

    return max(on_shards(tp, body))


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_sequence_parallelism_cuts_what_is_kept_for_backward_by_tp(kind):
    alone = saved_bytes(tiny(kind=kind), 1)
    kept = {tp: saved_bytes(tiny(kind=kind, sequence_parallel=True), tp) for tp in (2, 4)}
    assert kept[2] == pytest.approx(alone / 2, rel=0.01)
    assert kept[4] == pytest.approx(alone / 4, rel=0.01)
    assert saved_bytes(tiny(kind=kind), 2) > 1.2 * kept[2]


def test_a_block_costs_two_collectives_in_each_direction():
    def body(group):
        stage = build_stage(tiny(), layers=(1, 2), first=False, last=False, team=group, seed=1)
        stage.forward(torch.randn(2, 24, 96).requires_grad_(), None).sum().backward()

    assert on_counted_shards(2, body)[1] == {"all_reduce": 4}


def test_partial_gradients_are_summed_beside_the_accumulators():
    def body(group):
        shard = build_shard(tiny(num_layers=1, num_key_value_heads=2, qk_norm=True), group=group, pp=1)
        shard.step(rows(1))
        before = shard.stages[0].flat.grad.clone()
        shard.reduced()
        assert torch.equal(before, shard.stages[0].flat.grad)
        return {param.spec.name for param in shard.stages[0].params if param.partial}

    names = {f"layers.0.attn.{name}" for name in ("wk", "wv", "q_norm", "k_norm")}
    assert on_shards(4, body) == [names] * 4
