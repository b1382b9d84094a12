"""The codec on a GPU: `codec.cu`, compiled by CuPy at first use, on torch's stream and over torch's memory.

torch tensor --data_ptr--> kernel --> torch tensor        no copy, no other stream, nothing to wait for
"""

from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from raymega.comm.coded import BLOCK, Codec, int8_parts
from raymega.errors import ConfigError


def source() -> str:
    """The kernels' source text."""
    return (files("raymega.comm") / "codec.cu").read_text(encoding="utf-8")


def encode_on_cuda(grad: Tensor, *, residual: Tensor, scale: float, codec: Codec, wire: Tensor, left: Tensor) -> None:
    """As `codec.encode`."""
    if codec == "fp32":
        value = torch.mul(grad, 1.0 / scale).add_(residual)
        wire[: value.nbytes].view(torch.float32).copy_(value)
        left.zero_()
        return
    inverse = torch.tensor(1.0 / scale, dtype=torch.float32).item()
    _launch(f"encode_{codec}", grad, residual, _fp32(inverse), grad.numel(), *_parts(wire, codec, grad.numel()), left)


def add_on_cuda(wire: Tensor, *, codec: Codec, out: Tensor) -> None:
    """As `codec.add_decoded`."""
    if codec == "fp32":
        out.add_(wire[: out.nbytes].view(torch.float32))
        return
    _launch(f"add_{codec}", *_parts(wire, codec, out.numel()), out.numel(), out)


def _parts(wire: Tensor, codec: Codec, num_elements: int) -> tuple[Tensor, ...]:
    return int8_parts(wire, num_elements=num_elements) if codec == "int8" else (wire,)


def _launch(name: str, *arguments: Any) -> None:  # Any: tensors, whole numbers, CuPy's numbers
    """Run a kernel over as many blocks as the whole number among `arguments` says, on the current stream."""
    device = next(x.device for x in arguments if isinstance(x, Tensor))
    num_elements = next(x for x in arguments if isinstance(x, int))
    cupy = _cupy()
    raw = tuple(x.data_ptr() if isinstance(x, Tensor) else x for x in arguments)
    stream = torch.cuda.current_stream(device).cuda_stream
    with cupy.cuda.Device(device.index), cupy.cuda.ExternalStream(stream, device.index):
        _kernels().get_function(name)((-(-num_elements // BLOCK),), (BLOCK,), raw)


def _fp32(x: float) -> Any:
    return _cupy().float32(x)


@cache
def _kernels() -> Any:
    return _cupy().RawModule(code=source())


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ConfigError(
            "parallelism.grad_compression needs CuPy on a GPU. Install raymega[gpu], or set it to none."
        ) from error
    return cupy
