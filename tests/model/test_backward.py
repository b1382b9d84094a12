"""A backward in two parts: the first changes no gradient, both together do what the whole one does."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from raymega.model.backward import run_backward
from raymega.model.stage import PassContext, StageModel, build_stage
from tests.model.rig import rows, tiny

KINDS = {
    "llama": {"qk_norm": True, "dropout": 0.1},
    "gpt2": {"kind": "gpt2", "num_key_value_heads": None},
    "tied": {"tie_embeddings": True},
}
OPS = torch.ops
PRODUCTS = {  # operator -> places of the two factors
    OPS.aten.mm.default: (0, 1),
    OPS.aten.mv.default: (0, 1),
    OPS.aten.bmm.default: (0, 1),
    OPS.aten.addmm_.default: (1, 2),
    OPS.mkldnn._linear_pointwise.default: (0, 1),
}


class Flops(TorchDispatchMode):
    """Counts those of products; attention's, which is in the first part alone, by its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.attentions = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in PRODUCTS:
            a, b = (args[place] for place in PRODUCTS[func])
            self.total += 2 * prod(a.shape) * prod(b.shape) // a.shape[-1]
        self.attentions += "attention" in str(func)
        return func(*args, **(kwargs or {}))


class Held(TorchDispatchMode):
    """Bytes of the storages that were made while it is on, and are still there; `most`: of them at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known = weakref.WeakSet[torch.UntypedStorage]()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.untyped_storage() not in self._known:
                storage, size = x.untyped_storage(), x.untyped_storage().nbytes()
                self._known.add(storage)
                self._add(size)
                weakref.finalize(storage, self._add, -size)
        return out

    def _add(self, num_bytes: int) -> None:
        self.now += num_bytes
        self.most = max(self.most, self.now)


@contextmanager
def counted() -> Iterator[Flops]:
    with Flops() as flops:
        yield flops


def stage_of(model: dict[str, object], *, first: bool) -> StageModel:
    config = tiny(**{**model, "num_layers": 3})
    return build_stage(config, layers=(0, 2) if first else (1, 3), first=first, last=True, team=None, seed=1)


def forward(stage: StageModel, *, first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(input, loss) of one pass."""
    ids = rows(2)
    ctx = PassContext(step=0, samples=torch.arange(2), training=True)
    x = ids[:, :-1] if first else torch.randn(2, 24, 96, generator=torch.Generator().manual_seed(3)).requires_grad_()
    return x, stage.loss_sum(stage.forward(x, ctx), ids[:, 1:], None)


def in_parts(stage: StageModel, *, first: bool) -> tuple[torch.Tensor | None, Flops, Flops]:
    x, loss = forward(stage, first=first)
    before = stage.flat.grad.clone()
    with counted() as inputs:
        dx, later = stage.backward_to_input(loss, x=x, grad=torch.tensor(0.5))
    assert torch.equal(stage.flat.grad, before)
    with counted() as weights:
        later.run()
    return dx, inputs, weights


@pytest.mark.parametrize("first", [True, False], ids=["first stage", "last stage"])
@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
def test_two_parts_give_the_bits_of_the_whole_and_cost_as_much(model: dict[str, object], first: bool) -> None:
    whole, parted = stage_of(model, first=first), stage_of(model, first=first)
    for _ in range(2):  # the second adds to what is there
        x, loss = forward(whole, first=first)
        with counted() as all_of_it:
            run_backward(loss, grad=torch.tensor(0.5))
        dx, inputs, weights = in_parts(parted, first=first)
        assert torch.equal(whole.flat.grad, parted.flat.grad)
        assert dx is None if first else torch.equal(dx, x.grad)
        assert inputs.total + weights.total == all_of_it.total
        assert (inputs.attentions, weights.attentions) == (all_of_it.attentions, 0)
        assert 0.6 < inputs.total / weights.total < 1.2


@pytest.mark.parametrize("model", [KINDS["llama"], KINDS["gpt2"]], ids=["llama", "gpt2"])
def test_two_parts_hold_no_more_at_any_time_than_a_whole_one(model: dict[str, object]) -> None:
    most = {}
    for way in ("whole", "parts"):
        stage = stage_of(model, first=False)
        with Held() as held:
            x, loss = forward(stage, first=False)
            held.most = 0
            if way == "whole":
                run_backward(loss, grad=torch.tensor(0.5))
            else:
                stage.backward_to_input(loss, x=x, grad=torch.tensor(0.5))[1].run()
        most[way] = held.most
    assert 0 < most["parts"] <= 1.01 * most["whole"]


def test_a_first_part_that_breaks_leaves_nothing_put_off() -> None:
    stage = stage_of({}, first=False)
    x, loss = forward(stage, first=False)
    run_backward(loss, grad=torch.tensor(0.5))
    done = stage.flat.grad.clone()
    with pytest.raises(RuntimeError):
        stage.backward_to_input(loss, x=x, grad=torch.tensor(0.5))
    x, loss = forward(stage, first=False)
    run_backward(loss, grad=torch.tensor(0.5))
    assert torch.allclose(stage.flat.grad, 2 * done)


def test_weights_that_plain_torch_uses_are_added_with_the_second_part() -> None:
    stage = stage_of(KINDS["gpt2"], first=True)
    positions = stage.flat.param("embed.positions")
    x, loss = forward(stage, first=True)
    _, later = stage.backward_to_input(loss, x=x, grad=torch.tensor(1.0))
    assert not positions.grad.any()
    later.run()
    assert positions.grad.any()
