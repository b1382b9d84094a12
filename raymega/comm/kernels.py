"""Runs CUDA kernels of this package: compiled by CuPy at first use, on torch's stream and over torch's memory.

torch tensor --data_ptr--> kernel --> torch tensor        no copy, no other stream, nothing to wait for
"""

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

THREADS = 256  # of a block, in all kernels


def source(file: str) -> str:
    """The text of a file of kernels, as `comm/codec.cu`."""
    return (files("raymega") / file).read_text(encoding="utf-8")


def has_cupy() -> bool:
    """Whether kernels can be compiled here."""
    return find_spec("cupy") is not None


def launch(file: str, name: str, *arguments: Any, blocks: int) -> None:  # Any: tensors, whole numbers, CuPy's numbers
    """Run a kernel on the current stream of the device on which the tensors among its arguments lie."""
    import cupy

    device = next(x.device for x in arguments if isinstance(x, Tensor))
    raw = tuple(x.data_ptr() if isinstance(x, Tensor) else x for x in arguments)
    stream = torch.cuda.current_stream(device).cuda_stream
    with cupy.cuda.Device(device.index), cupy.cuda.ExternalStream(stream, device.index):
        _module(file).get_function(name)((blocks,), (THREADS,), raw)


@cache
def _module(file: str) -> Any:
    import cupy

    return cupy.RawModule(code=source(file))
