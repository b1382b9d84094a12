"""The registry of a stage's state: everything that may influence the next step, by (name, kind, box).

    layers.7.attn.wq   param        box      the fp32 values
    layers.7.attn.wq   exp_avg      box      moments, in the box of their parameter
    layers.7.attn.wq   exp_avg_sq   box
    optimizer.updates  counter      scalar   the same on all workers
    (its gradient)     residual     box      of one contributor alone (`train.unsent`); zero wherever state is saved
                                             or goes elsewhere, so it is not among these

What is not listed here is derived: rates from committed samples, dropout from (seed, step, sample), data by position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box
from raymega.train.optimizer import Optimizer

UPDATES = "optimizer.updates"
SCALAR = Box((), ())


class HeldParam(Protocol):
    """A parameter as a stage holds it, or some of its rows; it lies in [start, end) of flat buffers."""

    @property
    def spec(self) -> ParamSpec: ...
    @property
    def box(self) -> Box: ...
    @property
    def counted(self) -> bool: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    def view(self, flat: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView:
    """One piece of state; `tensor` is a view of the live state, to copy from or to write to.

    Args:
        shape: of the whole tensor.
        counted: of the copies in one replica, this is the one to save.
    """

    name: str
    kind: str
    box: Box
    shape: tuple[int, ...]
    counted: bool
    tensor: Tensor


def state_items(params: Sequence[HeldParam], *, data: Tensor, optimizer: Optimizer) -> Iterator[StateView]:
    """List the state of one stage: parameters in flat `data`, moments of the same layout, and the counter."""
    for kind, flat in {"param": data, **optimizer.moments}.items():
        for param in params:
            if param.box.num_elements:
                yield StateView(
                    name=param.spec.name, kind=kind, box=param.box, shape=param.spec.shape, counted=param.counted,
                    tensor=param.view(flat),
                )  # fmt: skip
    yield StateView(name=UPDATES, kind="counter", box=SCALAR, shape=(), counted=False, tensor=optimizer.updates)
