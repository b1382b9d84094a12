"""Where a stage's parameters and accumulated gradients lie: flat fp32 buffers of one layout, and what passes read.

    data     [ embed.tokens | wq wk wv | wo | gate up | down | ...   |  norms, biases ]    fp32: the parameters *
    grad     [      .       |    .     |  . |    .    |  .   | ...   |       .        ]    fp32
    weights  [      .       |    .     |  . |    .    |  .   | ...   |       .        ]    bf16, fp16: `data`, rounded
               `------------- decays, [0, num_decayed) ------------'   `- no decay --'     fp32: `data` itself

Every other flat buffer (moments, reduced gradients) has the same layout: `LocalParam.view` finds a parameter in it.
What stands together can be read as one matrix (`weight("wq", "wk", "wv")`), for one product where three would be.
Weights are autograd leaves whose `.grad` is the view of the gradient buffer, so a backward adds to it in place; nothing
ever replaces `.grad`, and only `zero_grad` clears it. Rounded weights are derived: `cast` makes them anew wherever
`data` has changed, so they are no state. * Where masters lie elsewhere, the matrices of 16 bits are all there is here,
and `data` is what does not decay. Source: Micikevicius et al. 2018 (arXiv 1710.03740), section 3.1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box
from raymega.layout.tp_split import has_partial_grad, is_counted, local_box, local_shape
from raymega.model.backward import WeightGrads
from raymega.model.tp_team import Team

ALIGN_ELEMENTS = 64  # 256 bytes of fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParam:
    """One named box, as this shard holds it.

    Args:
        spec: the whole tensor.
        box: the part held; may be empty.
        counted: of the copies in one replica, this is the one that counts for the norm and is saved.
        partial: each holder's gradient is a part; `StageModel.sum_partial_grads` adds them up.
        data: the values, a view without padding.
        grad: the accumulated gradient, a view without padding.
        start: offset in every flat buffer, in elements.
        shape: allocated shape, padding included; the valid part comes first.
    """

    spec: ParamSpec
    box: Box
    counted: bool
    partial: bool
    data: Tensor
    grad: Tensor
    start: int
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        """Where the allocated part ends in every flat buffer."""
        return self.start + prod(self.shape)

    def view(self, flat: Tensor) -> Tensor:
        """This parameter's valid part in a flat buffer of the stage's layout."""
        return _valid(flat, start=self.start, shape=self.shape, box=self.box)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatParams:
    """A stage's parameters. Decayed ones fill [0, num_decayed) of every flat buffer.

    Args:
        weights: what passes read.
        grads: what adds to `grad`.
        taken: names of the weights that were asked for, in the order in which they were.
    """

    params: tuple[LocalParam, ...]
    data: Tensor
    grad: Tensor
    weights: Tensor
    num_decayed: int
    grads: WeightGrads = field(default_factory=WeightGrads)
    taken: list[str] = field(default_factory=list)

    @classmethod
    def build(
        cls, specs: Iterable[ParamSpec], *, team: Team, copies: frozenset[str], device: torch.device,
        dtype: torch.dtype = torch.float32, masters: bool = True,
    ) -> "FlatParams":  # fmt: skip
        """Allocate zeros for this shard's part of `specs`, in their order, decayed ones first.

        Args:
            copies: names of which this stage's copy does not count (the last stage's tied embedding).
            dtype: of the weights that products read.
            masters: keep matrices in fp32 too, whatever the dtype.
        """
        ordered = sorted(specs, key=lambda spec: not spec.decays)
        shapes = [local_shape(spec, tp=team.size) for spec in ordered]
        num_decayed = aligned(sum(prod(shape) for spec, shape in zip(ordered, shapes, strict=True) if spec.decays))
        starts = _starts(ordered, shapes=shapes, num_decayed=num_decayed)
        grad = torch.zeros(aligned(starts[-1]), dtype=torch.float32, device=device)
        first = 0 if masters or dtype == torch.float32 else num_decayed
        data = torch.zeros_like(grad[first:])
        weights = data if dtype == torch.float32 else torch.zeros_like(grad, dtype=dtype)
        params = tuple(
            _local_param(
                spec,
                start=start,
                shape=shape,
                grad=grad,
                team=team,
                copy=spec.name in copies,
                data=(weights, start) if start < first else (data, start - first),
            )
            for spec, start, shape in zip(ordered, starts, shapes, strict=False)
        )
        return cls(params=params, data=data, grad=grad, weights=weights, num_decayed=num_decayed)

    def param(self, name: str) -> LocalParam:
        """The parameter of that global name."""
        return next(param for param in self.params if param.spec.name == name)

    def weight(self, *names: str) -> Tensor:
        """A leaf over the allocated rows of `names`, which stand together; its `.grad` is their gradient buffer."""
        return self._leaf(self.weights, names, first=0)

    def exact(self, name: str) -> Tensor:
        """As `weight`, in fp32 whatever products read: for norms."""
        return self._leaf(self.data, (name,), first=self.weights.numel() - self.data.numel())

    def cast(self) -> None:
        """Round the parameters to the weights; wherever they have changed."""
        if self.weights is not self.data:
            self.unseen_weights[self.weights.numel() - self.data.numel() :].copy_(self.data)

    @property
    def unseen_weights(self) -> Tensor:
        """`weights`, to be written to while passes are open: autograd holds no write against what it has saved."""
        return self.weights.data

    @property
    def unseen_data(self) -> Tensor:
        """`data`, likewise."""
        return self.data.data

    def _leaf(self, flat: Tensor, names: Sequence[str], *, first: int) -> Tensor:
        params = [self.param(name) for name in names]
        assert all(a.end == b.start for a, b in pairwise(params)), f"{names} stand together"
        rows = sum(param.shape[0] for param in params)
        span, shape = slice(params[0].start, params[-1].end), (rows, *params[0].shape[1:])
        leaf = flat[span.start - first : span.stop - first].view(shape).detach().requires_grad_()
        leaf.grad_dtype = torch.float32
        leaf.grad = self.grad[span].view(shape)
        self.grads.adopt(leaf)
        self.taken.extend(names)
        return leaf

    def zero_grad(self) -> None:
        """Clear the accumulated gradients."""
        self.grad.zero_()

    def ranges(self, *, counted: bool) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of every flat buffer that count, or that do not, neighbours joined; padding is zero."""
        return ranges_of(self.params, counted=counted)


class Stretch(Protocol):
    """What lies in a flat buffer, and may count."""

    @property
    def counted(self) -> bool: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


def ranges_of(params: Iterable[Stretch], *, counted: bool) -> tuple[tuple[int, int], ...]:
    """Half-open ranges that count, or that do not, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    for param in params:
        if param.counted == counted and ranges and ranges[-1][1] == param.start:
            ranges[-1] = (ranges[-1][0], param.end)
        elif param.counted == counted:
            ranges.append((param.start, param.end))
    return tuple(ranges)


def _starts(ordered: Sequence[ParamSpec], *, shapes: Sequence[tuple[int, ...]], num_decayed: int) -> list[int]:
    """Offset of each parameter, and the end of the last."""
    starts, end = [], 0
    for spec, shape in zip(ordered, shapes, strict=True):
        start = end if spec.decays else max(end, num_decayed)
        starts.append(start)
        end = start + prod(shape)
    return [*starts, end]


def aligned(num_elements: int) -> int:
    """Rounded up, so that no element of a range falls into a kernel's scalar tail, which rounds differently."""
    return -(-num_elements // ALIGN_ELEMENTS) * ALIGN_ELEMENTS


def _local_param(
    spec: ParamSpec, *, start: int, shape: tuple[int, ...], data: tuple[Tensor, int], grad: Tensor, team: Team,
    copy: bool,
) -> LocalParam:  # fmt: skip
    """`data`: a buffer, and where the parameter begins in it."""
    box = local_box(spec, tp=team.size, shard=team.rank)
    return LocalParam(
        spec=spec,
        box=box,
        counted=is_counted(spec, tp=team.size, shard=team.rank) and not copy,
        partial=has_partial_grad(spec, tp=team.size, sequence_parallel=team.sequence_parallel),
        data=_valid(data[0], start=data[1], shape=shape, box=box),
        grad=_valid(grad, start=start, shape=shape, box=box),
        start=start,
        shape=shape,
    )


def _valid(flat: Tensor, *, start: int, shape: tuple[int, ...], box: Box) -> Tensor:
    allocated = flat[start : start + prod(shape)].view(shape)
    return allocated.narrow(0, 0, box.sizes[0]) if shape else allocated
