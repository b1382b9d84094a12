"""A stage tells, while its backward runs, which of its gradients are complete."""

from pathlib import Path

import pytest
import torch

from raymega.config.schema import Config
from raymega.model.backward import run_backward
from raymega.model.stage import PassContext, StageModel, build_stage
from tests.model.rig import rows, tiny

OWN_MODEL = Path(__file__).parents[2] / "workloads" / "own_model"
NUM_LAYERS = 4


def configs() -> dict[str, Config]:
    return {
        "llama": tiny(num_layers=NUM_LAYERS, qk_norm=True, dropout=0.1),
        "gpt2": tiny(num_layers=NUM_LAYERS, kind="gpt2", num_key_value_heads=None),
        "own": tiny(num_layers=NUM_LAYERS, custom="own_model:build"),
    }


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "in two parts"])
@pytest.mark.parametrize("again", ["none", "full"])
@pytest.mark.parametrize("first", [True, False], ids=["first stage", "last stage"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "own"])
def test_nothing_is_added_any_more_to_what_a_backward_has_passed(monkeypatch, kind, first, again, in_parts):
    monkeypatch.syspath_prepend(OWN_MODEL)
    config = configs()[kind]
    config = config.model_copy(update={"parallelism": config.parallelism.model_copy(update={"recompute": again})})
    stage = build_stage(config, layers=(0, NUM_LAYERS), first=first, last=True, team=None, seed=1)
    told: dict[int, torch.Tensor] = {}
    ids = rows(2)
    x = ids[:, :-1] if first else torch.randn(2, 24, 96, generator=torch.Generator().manual_seed(3)).requires_grad_()
    ctx = PassContext(step=0, samples=torch.arange(2), training=True)
    loss = stage.loss_sum(
        stage.forward(x, ctx, passed=lambda part: told.update({part: stage.flat.grad.clone()})), ids[:, 1:], None
    )
    backward(stage, loss, x=x, in_parts=in_parts)
    assert list(told) == list(range(NUM_LAYERS + first, 0, -1))
    for param in stage.params:
        complete = [grad for part, grad in told.items() if part <= stage.first_use[param.spec.name]]
        assert all(torch.equal(param.view(grad), param.grad) for grad in complete), param.spec.name


def backward(stage: StageModel, loss: torch.Tensor, *, x: torch.Tensor, in_parts: bool) -> None:
    """From the loss, with a weight of a half."""
    if in_parts:
        _, later = stage.backward_to_input(loss, x=x, grad=torch.tensor(0.5))
        assert not stage.flat.grad.any()
        later.run()
    else:
        run_backward(loss, grad=torch.tensor(0.5))
