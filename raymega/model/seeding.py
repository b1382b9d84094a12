"""A parameter's first values: each element a function of (seed, global name, global index), never of the layout.

    key = hash(seed, name)     bits = mix(key + index)     uniform = (bits + 1/2) / 2^53     normal = inverse(uniform)

Only +, -, x, / and the square root are used, which IEEE 754 rounds alike everywhere: the same bits on every machine,
for every cut. A box is filled chunk by chunk; the whole tensor is never made.
The inverse of the normal distribution is algorithm AS 241, PPND7 (Wichura 1988), good to 1e-7. Schemes: Megatron's
scaled normal (Shoeybi et al. 2019, section 4: residual outputs by 1 / sqrt(2 layers)) and T5's (Raffel et al. 2019,
arXiv 1910.10683: by fan-in; queries need no further scale, since attention divides by sqrt(head_size)).
"""

import math

import torch
from torch import Tensor

from raymega.config.schema import ModelConfig
from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box
from raymega.model.counter_hash import bits_at, key_of, scalar_key

CHUNK_ELEMENTS = 1 << 14  # 128 KiB of 64-bit words: every pass stays in a core's cache

_CENTER = (
    (3.3871327179, 50.434271938, 159.29113202, 59.109374720),
    (1.0, 17.895169469, 78.757757664, 67.187563600),
)
_TAIL = ((1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103), (1.0, 0.73700164250, 0.12021132975))
_FAR_TAIL = ((6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997), (1.0, 0.24197894225, 0.012258202635))


def fill_first_values(out: Tensor, *, spec: ParamSpec, box: Box, seed: int, model: ModelConfig) -> None:
    """Write the first values of `box` of `spec` to `out`, a tensor of the box's sizes."""
    if spec.init == "ones":
        out.fill_(1.0)
    elif spec.init == "zeros":
        out.zero_()
    else:
        fill_normal(out, key=key_of(seed, spec.name), std=init_std(spec, model), box=box, shape=spec.shape)


def init_std(spec: ParamSpec, model: ModelConfig) -> float:
    """Standard deviation of a matrix's first values, from the whole model: the number of layers is the global one."""
    if model.init.scheme == "t5":
        return float(spec.fan_in**-0.5)
    return model.init.std / math.sqrt(2 * model.num_layers) if spec.init == "residual" else model.init.std


def fill_normal(out: Tensor, *, key: int, std: float, box: Box, shape: tuple[int, ...]) -> None:
    """Write N(0, std) of the elements in `box` of a tensor of `shape` to `out`."""
    if box.num_elements == 0:
        return
    width = box.sizes[-1]
    rows = _row_starts(box, shape)  # [R] index of the first element of each row of the box
    columns = torch.arange(width, dtype=torch.int64)
    flat, keys = out.view(-1, width), scalar_key(key, device=torch.device("cpu"))
    step = max(1, CHUNK_ELEMENTS // width)
    for start in range(0, rows.shape[0], step):
        bits = bits_at(keys, rows[start : start + step, None] + columns)
        flat[start : start + step] = normal_of(bits).mul_(std).to(out.dtype)


def normal_of(bits: Tensor) -> Tensor:
    """int64 random bits -> fp64 normal numbers."""
    offset = (bits >> 11).double().add_(0.5).mul_(2.0**-53)  # uniform in (-1/2, 1/2), never at an end
    rest = (offset * offset).neg_().add_(0.180625)
    normal = _ratio(rest, _CENTER).mul_(offset)
    outside = (rest < 0).nonzero(as_tuple=True)
    normal[outside] = _tail(offset[outside])
    return normal


def _tail(offset: Tensor) -> Tensor:
    """The outer 15 %, where |uniform - 1/2| > 0.425."""
    r = (-_log(0.5 - offset.abs())).sqrt_()
    magnitude = torch.where(r <= 5.0, _ratio(r - 1.6, _TAIL), _ratio(r - 5.0, _FAR_TAIL))
    return magnitude.copysign_(offset)


def _ratio(x: Tensor, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Tensor:
    above, below = (_polynomial(x, c) for c in coefficients)
    return above.div_(below)


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Horner's rule; products and sums are separate operations, since a fused one rounds differently."""
    total = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        total.add_(c).mul_(x)
    return total.add_(coefficients[0])


def _log(x: Tensor) -> Tensor:
    """Natural logarithm: x = m 2^e, log m = 2 artanh((m - 1) / (m + 1)), m in [sqrt(1/2), sqrt(2))."""
    m, e = torch.frexp(x)  # m in [1/2, 1)
    low = m < math.sqrt(0.5)
    m, e = torch.where(low, m * 2, m), torch.where(low, e - 1, e)
    s = (m - 1) / (m + 1)
    series = _polynomial(s * s, tuple(2.0 / (2 * k + 1) for k in range(10)))
    return series.mul_(s).add_(e.double().mul_(math.log(2.0)))


def _row_starts(box: Box, shape: tuple[int, ...]) -> Tensor:
    starts = torch.full((1,), box.offsets[-1], dtype=torch.int64)
    stride = shape[-1]
    for dim in range(len(shape) - 2, -1, -1):
        along = (torch.arange(box.sizes[dim], dtype=torch.int64) + box.offsets[dim]) * stride
        starts = (along[:, None] + starts[None, :]).view(-1)
        stride *= shape[dim]
    return starts
