"""How gradients of fewer bits lie in memory: the formats, and where the parts of a stretch are.

bf16, fp16   [c0 c1 ..]
int8         [s0 s1 .. | c0 c1 ..]      a scale in fp32 for each block of 256 codes; scales come first
"""

from typing import Literal

import torch
from torch import Tensor

Codec = Literal["fp32", "bf16", "fp16", "int8"]

BLOCK = 256  # elements that share a scale
ALIGN_BYTES = 16
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def encoded_bytes(num_elements: int, *, codec: Codec) -> int:
    """Bytes of a stretch; a multiple of `ALIGN_BYTES`."""
    if codec == "int8":
        num_bytes = 4 * num_blocks(num_elements) + num_elements
    else:
        num_bytes = num_elements * DTYPES[codec].itemsize
    return -(-num_bytes // ALIGN_BYTES) * ALIGN_BYTES


def num_blocks(num_elements: int) -> int:
    """Scales of an int8 stretch, which come first in it."""
    return -(-num_elements // BLOCK)


def int8_parts(wire: Tensor, *, num_elements: int) -> tuple[Tensor, Tensor]:
    """Scales [blocks] fp32, codes [n] int8."""
    at = 4 * num_blocks(num_elements)
    return wire[:at].view(torch.float32), wire[at : at + num_elements].view(torch.int8)
