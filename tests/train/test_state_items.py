import torch

from raymega.config.schema import TrainingConfig
from raymega.layout.shard_box import Box
from raymega.model.stage import build_stage
from raymega.train.optimizer import build_optimizer
from raymega.train.state_items import state_items
from raymega.train.step_facts import Commit, Expected, Facts, MicrobatchLoss, Skip, decide
from tests.model.rig import build_shard, on_shards, rows, tiny


def build(kind="adamw"):
    stage = build_stage(tiny(num_layers=2), layers=(0, 2), first=True, last=True, team=None, seed=1)
    training = TrainingConfig(optimizer=kind, weight_decay=0.1)
    return stage, build_optimizer(training, data=stage.flat.data, num_decayed=stage.flat.num_decayed)


def items(stage, optimizer):
    return {
        (item.name, item.kind): item for item in state_items(stage.params, data=stage.flat.data, optimizer=optimizer)
    }


def test_the_registry_lists_parameters_moments_and_the_counter():
    stage, optimizer = build()
    listed = items(stage, optimizer)
    names = {param.spec.name for param in stage.params}
    assert set(listed) == {(n, k) for n in names for k in ("param", "exp_avg", "exp_avg_sq")} | {
        ("optimizer.updates", "counter")
    }
    item = listed["layers.1.attn.wk", "exp_avg"]
    assert (item.shape, item.box) == ((32, 96), Box((0, 0), (32, 96)))


def test_sgd_has_no_moments():
    assert {kind for _, kind in items(*build("sgd"))} == {"param", "counter"}


def test_items_are_views_of_the_live_state_without_padding():
    stage, optimizer = build()
    listed = items(stage, optimizer)
    optimizer.apply(torch.ones_like(stage.flat.grad), lr=0.1, clip=1.0)
    assert listed["embed.tokens", "exp_avg"].tensor.shape == (97, 96)
    assert torch.allclose(listed["embed.tokens", "exp_avg"].tensor, torch.tensor(0.1))
    listed["embed.tokens", "param"].tensor.fill_(7.0)
    assert stage.flat.param("embed.tokens").data.eq(7.0).all()
    assert listed["optimizer.updates", "counter"].tensor == 1


def test_decay_goes_by_the_whole_tensor_not_by_its_shard():
    def body(group):
        shard = build_shard(tiny(num_layers=1, kind="gpt2", num_key_value_heads=12), group=group, pp=1)
        flat = shard.stages[0].flat
        before = flat.data.clone()
        training = TrainingConfig(weight_decay=0.1)
        build_optimizer(training, data=flat.data, num_decayed=flat.num_decayed).apply(
            torch.zeros_like(flat.grad), lr=0.1, clip=1.0
        )
        return [(p.spec.decays, torch.equal(p.view(before), p.data)) for p in flat.params if p.view(before).any()]

    for shard in on_shards(4, body):
        assert all(decays != unchanged for decays, unchanged in shard)


def test_a_step_with_a_nan_leaves_every_piece_of_state_as_it_was():
    (shard,) = on_shards(1, lambda group: build_shard(tiny(num_layers=2), group=group, pp=1))
    stage = shard.stages[0]
    optimizer = build_optimizer(TrainingConfig(), data=stage.flat.data, num_decayed=stage.flat.num_decayed)
    before = {key: item.tensor.clone() for key, item in items(stage, optimizer).items()}
    losses = []
    for microbatch, ids in enumerate(rows(4).chunk(4)):
        shard.loss = 0.0
        shard.step(ids, scale=float("nan") if microbatch == 2 else 1.0)
        losses.append(MicrobatchLoss(microbatch=microbatch, loss_sum=shard.loss, tokens=24))
    norm_sq = float(stage.flat.grad.double().square().sum())
    facts = Facts(step=3, generation=1, norm_sq=norm_sq, losses=tuple(losses), work_hash=0, elements=0, contributors=0)
    expected = Expected(step=3, generation=1, work_hash=0, elements=0, contributors=0, num_microbatches=4, tokens=96)
    ruling = decide(facts, expected=expected, training=TrainingConfig(), samples=16)
    if isinstance(ruling, Commit):
        optimizer.apply(stage.flat.grad, lr=ruling.lr, clip=ruling.clip)
    assert isinstance(ruling, Skip)
    assert all(torch.equal(item.tensor, before[key]) for key, item in items(stage, optimizer).items())
