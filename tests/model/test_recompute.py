"""What is computed again has the bits that it had, and keeps less."""

import pytest
import torch

from raymega.config.schema import Config
from raymega.model.stage import PassContext, StageModel, build_stage

MODEL = {"hidden_size": 48, "num_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
         "dropout": 0.1, "qk_norm": True}  # fmt: skip
GPT2 = {**MODEL, "kind": "gpt2", "num_key_value_heads": None, "qk_norm": False}
IDS = torch.arange(64).view(2, 32) % 50


def stage(recompute: object, *, model: dict, precision: str = "fp32") -> StageModel:
    raw = {"model": model, "data": {"seq_len": 32}, "parallelism": {"recompute": recompute}}
    made = Config.model_validate({**raw, "training": {"precision": precision}})
    return build_stage(made, layers=(0, 3), first=True, last=True, team=None, seed=1)


def gradients(model: StageModel, *, in_parts: bool = False) -> torch.Tensor:
    hidden = model.forward(IDS, PassContext(step=3, samples=torch.arange(2), training=True))
    loss = model.loss_sum(hidden, IDS, None)
    if in_parts:
        _, later = model.backward_to_input(loss, x=IDS, grad=torch.ones(()))
        assert model.flat.grad.count_nonzero() == 0
        later.run()
    else:
        loss.backward()
    return model.flat.grad


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", ["selective", "full", [0, 2]], ids=str)
@pytest.mark.parametrize("model", [MODEL, GPT2], ids=["llama", "gpt2"])
def test_gradients_have_the_same_bits(model, recompute, precision):
    kept = gradients(stage("none", model=model, precision=precision))
    assert torch.equal(gradients(stage(recompute, model=model, precision=precision)), kept)


@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("model", [MODEL, GPT2], ids=["llama", "gpt2"])
def test_a_backward_in_two_parts_adds_nothing_in_the_first_and_the_same_bits_in_all(model, recompute):
    assert torch.equal(gradients(stage(recompute, model=model), in_parts=True), gradients(stage("none", model=model)))
