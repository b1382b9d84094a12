"""Gradients with fewer bits, and what the rounding leaves: what is not sent now is sent later (error feedback).

    value = gradient / scale + residual            fp32, of each contributor by itself
    sent  = what the others can read of value      as below
    left  = value - sent                           the residual of the next step

    over all steps   sum of sent + residual = sum of gradients

            an element is sent as                                            bytes an element
    fp32    itself: nothing is left                                          4
    bf16    its nearest bf16                                                 2
    fp16    its nearest fp16                                                 2
    int8    round(value / s), s = the block's largest |value| / 127          1 + 4 / 256

Ties are rounded to even, and every operation is rounded by itself, so CPU and CUDA (`codec.cu`, one pass) give the same
bits. A block with an element that is not finite is sent as nan, so the step is skipped. Source: Seide et al. 2014,
"1-bit stochastic gradient descent"; blocks: Dettmers et al. 2022 (arXiv 2110.02861), section 2.
"""

import torch
from torch import Tensor

from raymega.comm.coded import BLOCK, DTYPES, Codec, int8_parts, num_blocks

CHUNK_ELEMENTS = 1 << 16  # at a time: 256 KiB, which a core's cache holds; whole blocks
_LEAST_SCALE = torch.finfo(torch.float32).tiny  # below it an inverse may not be finite


@torch.no_grad()
def encode(grad: Tensor, *, residual: Tensor, scale: float, codec: Codec, wire: Tensor, left: Tensor) -> None:
    """Write a stretch to `wire` and what is left of it to `left`; `grad` and `residual` stay unwritten.

    Args:
        grad, residual, left: [n] fp32, contiguous. `left` may not be `residual`.
        scale: of the loss, which is taken out.
        wire: `encoded_bytes` of uint8.
    """
    if grad.is_cuda:
        from raymega.comm.codec_cuda import encode_on_cuda

        return encode_on_cuda(grad, residual=residual, scale=scale, codec=codec, wire=wire, left=left)
    for first in range(0, grad.numel(), CHUNK_ELEMENTS):
        part = slice(first, min(first + CHUNK_ELEMENTS, grad.numel()))
        value = torch.mul(grad[part], 1.0 / scale).add_(residual[part])
        if codec == "int8":
            scales, codes = int8_parts(wire, num_elements=grad.numel())
            blocks = slice(part.start // BLOCK, num_blocks(part.stop))
            sent = _encode_int8(value, scales=scales[blocks], codes=codes[part])
        else:
            codes = wire.view(DTYPES[codec])[part]
            sent = codes.copy_(value).float()
        torch.sub(value, sent, out=left[part])
    return None


@torch.no_grad()
def add_decoded(wire: Tensor, *, codec: Codec, out: Tensor) -> None:
    """Add what a stretch says to `out` [n] fp32."""
    if out.is_cuda:
        from raymega.comm.codec_cuda import add_on_cuda

        return add_on_cuda(wire, codec=codec, out=out)
    if codec != "int8":
        out.add_(wire.view(DTYPES[codec])[: out.numel()].float())
        return None
    scales, codes = int8_parts(wire, num_elements=out.numel())
    for first in range(0, out.numel(), CHUNK_ELEMENTS):
        part = slice(first, min(first + CHUNK_ELEMENTS, out.numel()))
        out[part].add_(_decoded_int8(codes[part], scales=scales[part.start // BLOCK : num_blocks(part.stop)]))
    return None


def _encode_int8(value: Tensor, *, scales: Tensor, codes: Tensor) -> Tensor:
    """Write scales and codes of whole blocks, the last of which may be short; what they say."""
    blocks = _in_blocks(value)  # [blocks, BLOCK]
    torch.div(blocks.abs().amax(dim=1), 127.0, out=scales)
    scales.masked_fill_(~scales.isfinite(), torch.nan).masked_fill_(scales < _LEAST_SCALE, 0.0)
    to_code = scales.reciprocal().nan_to_num_(nan=0.0, posinf=0.0)
    rounded = torch.mul(blocks, to_code[:, None]).round_().clamp_(-127.0, 127.0)
    rounded.masked_fill_((to_code == 0.0)[:, None], 0.0)  # inf times 0
    codes.copy_(rounded.view(-1)[: value.numel()])
    return rounded.mul_(scales[:, None]).view(-1)[: value.numel()]


def _decoded_int8(codes: Tensor, *, scales: Tensor) -> Tensor:
    return _in_blocks(codes.float()).mul_(scales[:, None]).view(-1)[: codes.numel()]


def _in_blocks(x: Tensor) -> Tensor:
    """[n] -> [blocks, BLOCK], filled up with zeros; the same memory where nothing is to be filled up."""
    missing = -x.numel() % BLOCK
    return (torch.cat([x, x.new_zeros(missing)]) if missing else x).view(-1, BLOCK)
