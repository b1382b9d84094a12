"""Runs a backward pass from a gradient that came from elsewhere: the next stage's, or the weight of a loss.

    whole       dy -> dx, and every weight's gradient is added to its accumulator on the way
    in parts    dy -> dx, and what is to be added is put off: `Later`, a list of products that are still to be made
                Later.run() makes them, and adds them; nobody else waits for that

Pieces of this room hand in what they have for a weight through `add_to`; for all other weights autograd makes the
gradient with the first part, and it is added with the second. An accumulator never changes in a first part.

torch's own `backward(gradient)` imports sympy to compare two shapes, the first time it is called: seconds of a worker's
first step, and memory for good. A scalar that hands the gradient on needs none.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_WAY = "raymega_way"  # the attribute of a weight by which its pieces find out


class Later:
    """What a first part has put off, in the order in which it came up."""

    def __init__(self) -> None:
        self._work: list[Callable[[], None]] = []

    def put_off(self, work: Callable[[], None]) -> None:
        self._work.append(work)

    def put_first(self, works: Iterable[Callable[[], None]]) -> None:
        self._work[:0] = works

    def run(self) -> None:
        """Do it, and free what it was kept for."""
        with torch.no_grad():
            while self._work:
                self._work.pop(0)()


class _Way:
    """Where the work of a stage's weights goes: to `later`, or nowhere: it is done at once."""

    later: Later | None = None


class WeightGrads:
    """The weights of a stage, and whether what a backward has for them is added at once. Not thread-safe."""

    def __init__(self) -> None:
        self._weights: list[Tensor] = []
        self._way = _Way()  # weights know it, and not this object, which knows them: no circle keeps them alive

    def adopt(self, weight: Tensor) -> None:
        """From here on this object says when `add_to(weight, ..)` adds."""
        weight.__dict__[_WAY] = self._way
        self._weights.append(weight)

    def run_input_part(self, y: Tensor, *, x: Tensor, grad: Tensor) -> tuple[Tensor | None, Later]:
        """The gradient of `x`, None if it has none (ids), and what is left to be done for the weights."""
        later = self._way.later = Later()
        wanted = [*self._weights, *([x] if x.requires_grad else [])]
        try:
            found = torch.autograd.grad(_seeded(y, grad), wanted, allow_unused=True)
        finally:
            self._way.later = None
        later.put_first(_addition(w, part) for w, part in zip(self._weights, found, strict=False) if part is not None)
        return found[-1] if x.requires_grad else None, later

    def when_added(self, tell: Callable[[], None]) -> None:
        """Call `tell` once all is added that the backward which runs has handed in so far."""
        if self._way.later is None:
            tell()
        else:
            self._way.later.put_off(tell)

    def run_within(self, y: Tensor, *, x: Tensor, grad: Tensor) -> Tensor | None:
        """The gradient of `x`, inside a backward that runs: what is for the weights goes the way of the rest of it."""
        if self._way.later is None:
            run_backward(y, grad=grad)
            return x.grad
        *found, dx = torch.autograd.grad(_seeded(y, grad), [*self._weights, x], allow_unused=True)
        for weight, part in zip(self._weights, found, strict=True):
            if part is not None:
                self._way.later.put_off(_addition(weight, part))
        return dx


def add_to(weight: Tensor, work: Callable[[], None]) -> None:
    """Do `work`, which adds to the accumulated gradient of `weight`: now, or with this backward's weights' part."""
    way: _Way | None = weight.__dict__.get(_WAY)
    if way is None or way.later is None:
        work()
    else:
        way.later.put_off(work)


def run_backward(y: Tensor, *, grad: Tensor) -> None:
    """Run the backward pass of `y` with `grad`, of the same shape, which stays unwritten."""
    _seeded(y, grad).backward()


def let_go(y: Tensor) -> None:
    """Free the values of `y`, which are copied elsewhere: its backward needs its shape and its graph only.

    What its graph has saved of it, or of what it is a view of, stays. Megatron-LM calls this output deallocation.
    """
    y.data = y.new_zeros(()).expand(y.shape)


def _seeded(y: Tensor, grad: Tensor) -> Tensor:
    assert y.shape == grad.shape, f"the gradient {tuple(grad.shape)} has the shape of its tensor {tuple(y.shape)}"
    return _Seed.apply(y, grad)


def _addition(weight: Tensor, part: Tensor) -> Callable[[], None]:
    def add() -> None:
        assert weight.grad is not None
        weight.grad.add_(part)

    return add


class _Seed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, grad: Tensor) -> Tensor:
        ctx.grad = grad
        return y.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.grad, None
