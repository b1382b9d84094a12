"""A piece of state as a worker holds it: (name, kind, box) and the tensor that is that box."""

from dataclasses import dataclass

import torch

from raymega.errors import RaymegaBug
from raymega.layout.checkpoint_manifest import TensorInfo
from raymega.layout.shard_box import Box

TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
}
_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateItem:
    """What one worker holds of one tensor.

    Args:
        name: global name.
        kind: param, exp_avg, exp_avg_sq and the like.
        shape: of the whole tensor.
        box: the part that is held.
        tensor: a view of the live state, shaped like the box; need not be contiguous.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    box: Box
    tensor: torch.Tensor

    def __post_init__(self) -> None:
        assert tuple(self.tensor.shape) == self.box.sizes, f"{self.name}: {tuple(self.tensor.shape)} is not {self.box}"

    @property
    def info(self) -> TensorInfo:
        """The whole tensor that it is a part of."""
        return TensorInfo(name=self.name, kind=self.kind, shape=self.shape, dtype=dtype_name(self.tensor.dtype))

    def part(self, box: Box) -> "StateItem":
        """A part of what is held, as a view."""
        view = self.tensor[box.within(self.box)]
        return StateItem(name=self.name, kind=self.kind, shape=self.shape, box=box, tensor=view)


def dtype_name(dtype: torch.dtype) -> str:
    """safetensors' name of a type."""
    if dtype not in _NAMES:
        raise RaymegaBug(f"no checkpoint holds {dtype}; it holds {', '.join(map(str, _NAMES))}")
    return _NAMES[dtype]
