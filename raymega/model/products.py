"""The products of a linear layer, X W', dY W and dY' X, by the fastest way for their number format and device.

                 X W', dY W                               dY' X, added to the fp32 accumulator
    fp32  CPU    oneDNN, generated for the processor      addmm_, without a further pass
    bf16  CPU    oneDNN, vdpbf16ps (avx512_bf16) or AMX   one product, rounded to bf16, then added
    fp16  CPU    in fp32, rounded: few CPUs have fp16     in fp32
          CUDA   cuBLAS                                   one product, left in fp32, then added

Sums inside a product are fp32 in all of them. torch keeps fp32 products for MKL outside compiled code, on AMD with half
of what the processor can do, so oneDNN's operator is called by its name, which is private: where it is missing, the
public function is taken. A product has the same bits every time, whichever it is.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., in], weight [out, in] -> x W' + bias [.., out]; autograd does not see it."""
    if _is_slow(x):
        exact = linear(x.float(), weight.float(), None if bias is None else bias.float())
        return exact.to(x.dtype)
    if _suits_onednn(x, weight):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


def backward_product(dy: Tensor, weight: Tensor) -> Tensor:
    """dy [.., out], weight [out, in] -> dy W [.., in]."""
    return linear(dy, weight.t())


def add_product(total: Tensor, *, dy: Tensor, x: Tensor) -> None:
    """total [out, in] fp32 += dy' x, of dy [rows, out] and x [rows, in]."""
    if x.dtype == torch.float32 or _is_slow(x):
        total.addmm_(dy.t().float(), x.float())
    elif x.device.type == "cpu":
        total.add_(torch.mm(dy.t(), x))
    else:
        total.add_(torch.mm(dy.t(), x, out_dtype=torch.float32))


def _is_slow(x: Tensor) -> bool:
    """Whether the processor has no products of this format to speak of."""
    return x.dtype == torch.float16 and x.device.type == "cpu"


def _suits_onednn(x: Tensor, weight: Tensor) -> bool:
    is_fp32 = x.dtype == weight.dtype == torch.float32
    return is_fp32 and x.device.type == "cpu" and x.numel() > 0 and weight.numel() > 0 and _has_onednn()


@cache
def _has_onednn() -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    schemas = torch._C._jit_get_schemas_for_operator("mkldnn::_linear_pointwise")
    return any(len(schema.arguments) == 6 for schema in schemas)
