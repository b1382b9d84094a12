"""The codec on a GPU: the kernels of `codec.cu`, which read and write every element once."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from raymega.comm.coded import Codec, int8_parts, num_blocks
from raymega.comm.kernels import has_cupy, launch
from raymega.errors import ConfigError

FILE = "comm/codec.cu"


def encode_on_cuda(grad: Tensor, *, residual: Tensor, scale: float, codec: Codec, wire: Tensor, left: Tensor) -> None:
    """As `codec.encode`."""
    if codec == "fp32":
        value = torch.mul(grad, 1.0 / scale).add_(residual)
        wire[: value.nbytes].view(torch.float32).copy_(value)
        left.zero_()
        return
    n = grad.numel()
    _launch(
        f"encode_{codec}", grad, residual, np.float32(1.0 / scale), n, *_parts(wire, codec, n), left, num_elements=n
    )


def add_on_cuda(wire: Tensor, *, codec: Codec, out: Tensor) -> None:
    """As `codec.add_decoded`."""
    if codec == "fp32":
        out.add_(wire[: out.nbytes].view(torch.float32))
        return
    n = out.numel()
    _launch(f"add_{codec}", *_parts(wire, codec, n), n, out, num_elements=n)


def _parts(wire: Tensor, codec: Codec, num_elements: int) -> tuple[Tensor, ...]:
    return int8_parts(wire, num_elements=num_elements) if codec == "int8" else (wire,)


def _launch(name: str, *arguments: Any, num_elements: int) -> None:  # Any: as `launch`
    if not has_cupy():
        raise ConfigError(
            "parallelism.grad_compression needs CuPy on a GPU. Install raymega[gpu], or set it to none."
        )  # fmt: skip
    launch(FILE, name, *arguments, blocks=num_blocks(num_elements))
