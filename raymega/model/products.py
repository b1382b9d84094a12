"""X W' and dY W in fp32 on a CPU: oneDNN where torch has it, else what torch takes by itself.

    F.linear, mm     MKL's sgemm; on AMD one that does not use all that the processor has
    oneDNN's         generated for the very processor

torch keeps fp32 products for MKL outside compiled code, so oneDNN's operator is called by its name, which is private:
where it is missing, the public function is taken. A product has the same bits every time, whichever it is. The
gradient of a weight stays with `addmm_`, which adds without a further pass.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., in], weight [out, in] -> x W' + bias [.., out]; autograd does not see it."""
    if _suits_onednn(x, weight):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


def backward_product(dy: Tensor, weight: Tensor) -> Tensor:
    """dy [.., out], weight [out, in] -> dy W [.., in]."""
    return linear(dy, weight.t())


def _suits_onednn(x: Tensor, weight: Tensor) -> bool:
    is_fp32 = x.dtype == weight.dtype == torch.float32
    return is_fp32 and x.device.type == "cpu" and x.numel() > 0 and weight.numel() > 0 and _has_onednn()


@cache
def _has_onednn() -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    schemas = torch._C._jit_get_schemas_for_operator("mkldnn::_linear_pointwise")
    return any(len(schema.arguments) == 6 for schema in schemas)
