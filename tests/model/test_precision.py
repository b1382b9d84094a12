"""Products and activations of 16 bits, everything that adds up in fp32."""

import pytest
import torch

from raymega.config.schema import Config, TrainingConfig
from raymega.model.norms import layer_norm, rms_norm
from raymega.model.products import add_product, linear
from raymega.model.stage import PassContext, StageModel, build_stage
from raymega.train.optimizer import build_optimizer

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
MODEL = {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 4, "vocab_size": 50}


def stage(precision: str, **model: object) -> StageModel:
    raw = {"model": {**MODEL, **model}, "data": {"seq_len": 16}, "training": {"precision": precision}}
    return build_stage(Config.model_validate(raw), layers=(0, 2), first=True, last=True, team=None, seed=1)


@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_activations_are_of_16_bits_and_loss_and_gradients_of_32(kind, precision):
    model = stage(precision, kind=kind)
    ids = torch.arange(32).view(2, 16) % 50
    hidden = model.forward(ids, PassContext(step=0, samples=torch.arange(2), training=True))
    loss = model.loss_sum(hidden, ids, None)
    loss.backward()
    assert (hidden.dtype, model.dtype, loss.dtype) == (LOW[precision], LOW[precision], torch.float32)
    assert model.flat.grad.dtype == model.flat.data.dtype == torch.float32
    assert all(param.grad.abs().max() > 0 for param in model.params if not param.spec.name.endswith(".bk"))


def test_an_update_below_half_a_bf16_step_moves_the_weight():
    model = stage("bf16")
    model.flat.data.fill_(1.0)
    optimizer = build_optimizer(
        TrainingConfig(optimizer="sgd", weight_decay=0.0), data=model.flat.data, num_decayed=model.flat.num_decayed
    )
    for _ in range(100):
        optimizer.apply(torch.ones_like(model.flat.grad), lr=6e-4, clip=1.0)
        model.flat.cast()
    assert model.flat.data[0] == pytest.approx(0.94, abs=1e-4)
    assert model.flat.weights[0] == 0.94140625


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
def test_a_sum_of_small_contributions_is_kept(dtype):
    total, one = torch.ones(1, 1), torch.ones(1, 1, dtype=dtype)
    for _ in range(64):
        add_product(total, dy=one, x=one * 2**-13)
    assert total.item() == 1.0078125


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
def test_a_product_is_that_of_fp32_rounded_once(dtype):
    torch.manual_seed(3)
    x, weight = torch.randn(7, 300).to(dtype), torch.randn(5, 300).to(dtype)
    expected = x.double() @ weight.double().t()
    assert torch.allclose(linear(x, weight).double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-3)


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
def test_norms_add_up_squares_in_fp32(dtype):
    x = torch.full((1, 4096), 200.0).to(dtype)  # the sum of squares is beyond fp16, and lost in bf16
    x[0, ::2] *= -1
    weight, bias = torch.ones(4096), torch.zeros(4096)
    for y in (rms_norm(x, weight=weight, eps=1e-5), layer_norm(x, weight=weight, bias=bias, eps=1e-5)):
        assert torch.equal(y.float(), x.float().sign())
