import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.config.schema import ModelConfig
from raymega.layout.param_layout import param_specs
from raymega.layout.shard_box import Box
from raymega.model.counter_hash import bits_at, key_of, scalar_key
from raymega.model.seeding import fill_first_values, fill_normal, init_std, normal_of
from tests.model.rig import TINY, build_shard, on_shards, tiny, whole

CPU = torch.device("cpu")


def normal(box, shape, *, key=7):
    out = torch.empty(box.sizes)
    fill_normal(out, key=key, std=1.0, box=box, shape=shape)
    return out


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_box_holds_the_slice_of_the_whole_to_the_bit(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    offsets = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    box = Box(offsets, tuple(data.draw(st.integers(1, n - o)) for n, o in zip(shape, offsets, strict=True)))
    assert torch.equal(normal(box, shape), normal(Box.whole(shape), shape)[box.within(Box.whole(shape))])


def test_values_are_the_inverse_of_the_normal_distribution():
    bits = bits_at(scalar_key(7, device=CPU), torch.arange(5000))
    uniform = ((bits >> 11).double() + 0.5) * 2.0**-53 + 0.5
    exact = [statistics.NormalDist().inv_cdf(u) for u in uniform.tolist()]
    assert normal_of(bits).tolist() == pytest.approx(exact, rel=2e-7)


def test_the_far_tails_are_finite_and_right():
    extremes = torch.tensor([-(2**63), 2**63 - 1, -(2**63) + (1 << 30)])
    exact = [statistics.NormalDist().inv_cdf(2.0**-54 + i * 2.0**-34) for i in (0, 1)]
    got = normal_of(extremes).tolist()
    assert [got[0], -got[1]] == pytest.approx([exact[0]] * 2, rel=2e-7)
    assert got[2] == pytest.approx(exact[1], rel=2e-7)


def test_moments_are_those_of_a_normal_distribution():
    x = normal(Box.whole((1000, 1000)), (1000, 1000)).double()
    assert abs(x.mean()) < 4e-3
    assert x.std() == pytest.approx(1.0, abs=4e-3)
    assert (x**4).mean() == pytest.approx(3.0, abs=3e-2)
    assert abs((x[:, 1:] * x[:, :-1]).mean()) < 4e-3
    assert abs((x[1:] * x[:-1]).mean()) < 4e-3


def test_every_name_and_every_seed_has_its_own_values():
    config = tiny(num_layers=4)
    first, other = (shard_weights(config, tp=1, pp=1, seed=seed) for seed in (1, 2))
    matrices = [name for name, tensor in first.items() if tensor.dim() > 1]
    values = [tuple(first[name].flatten()[:64].tolist()) for name in matrices]
    assert len(set(values)) == len(matrices)
    assert not any(torch.equal(first[name], other[name]) for name in matrices)


def shard_weights(config, *, tp, pp, seed=1234):
    def body(group):
        shard = build_shard(config, group=group, pp=pp, seed=seed)
        return shard.named([stage.flat.data for stage in shard.stages])

    return whole(on_shards(tp, body))


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_first_values_do_not_hang_on_the_layout(kind):
    config = tiny(kind=kind, num_layers=4, num_key_value_heads=1, tie_embeddings=True)
    want = shard_weights(config, tp=1, pp=1)
    for tp, pp in [(1, 2), (1, 4), (2, 1), (2, 2), (4, 2)]:
        got = shard_weights(config, tp=tp, pp=pp)
        assert got.keys() == want.keys()
        assert all(torch.equal(got[name], want[name]) for name in want)


def test_scaled_normal_scales_residual_outputs_by_the_global_number_of_layers():
    model = ModelConfig(**TINY)
    specs = {spec.name: spec for spec in param_specs(model, seq_len=24)}
    assert init_std(specs["layers.3.attn.wq"], model) == 0.02
    assert init_std(specs["layers.3.attn.wo"], model) == 0.02 / math.sqrt(20)
    assert init_std(specs["layers.3.mlp.down"], model) == 0.02 / math.sqrt(20)


def test_t5_scales_by_fan_in_of_the_whole_matrix():
    model = ModelConfig(**TINY, init={"scheme": "t5"})
    specs = {spec.name: spec for spec in param_specs(model, seq_len=24)}
    assert init_std(specs["layers.3.mlp.down"], model) == pytest.approx(160**-0.5)
    assert init_std(specs["embed.tokens"], model) == 1.0
    assert init_std(specs["head.out"], model) == pytest.approx(96**-0.5)


def test_ones_and_zeros_are_filled():
    model = ModelConfig(**{**TINY, "kind": "gpt2"})
    specs = {spec.name: spec for spec in param_specs(model, seq_len=24)}
    for name, value in [("final_norm.weight", 1.0), ("final_norm.bias", 0.0)]:
        out = torch.full((96,), 5.0)
        fill_first_values(out, spec=specs[name], box=Box.whole((96,)), seed=1, model=model)
        assert torch.equal(out, torch.full((96,), value))


def test_values_are_pinned():
    """These bits are a promise: runs and machines share them, and a checkpoint of step 0 can be made again."""
    out = normal(Box.whole((3,)), (3,), key=key_of(1234, "layers.0.attn.wq"))
    assert out.numpy().tobytes().hex() == "fdb8cdbd5ab2df3d55ee18bf"
