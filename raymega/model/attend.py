"""Causal softmax(q k' / sqrt(K)) v, by the fastest way for its number format and device.

    bf16 on a CPU   torch's flash attention forward; backward in blocks of queries, of this file
    all others      torch's, both ways

    of a block of queries       P = exp(q k' / sqrt(K) - lse), zero above the diagonal
                               dv += P' dy
                               dS = P (dy v' - sum(dy y))           dq = dS k / sqrt(K)    dk += dS' q / sqrt(K)

Scores and their gradients are fp32, as the sums are; P and dS are rounded to bf16 for the products in which they stand,
which the processor does at twice the pace of fp32. torch's own backward takes twice as long on a CPU, and its dq and dk
lie further from the exact ones. Nothing is kept but what flash attention keeps: no score outlives its block.
Source: Dao et al. 2022, "FlashAttention" (arXiv 2205.14135), algorithm 4.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # queries
TAKES = ["query", "key", "value", "dropout_p", "is_causal"]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q [B, heads, T, K], k and v [B, kv heads, T, K] -> [B, heads, T, K]."""
    if q.dtype == torch.bfloat16 and q.device.type == "cpu" and _has_flash():
        return _Attend.apply(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # Any: torch's context has no type
        mixed, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
        ctx.save_for_backward(q, k, v, mixed, lse)
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, mixed, lse = ctx.saved_tensors
        groups, (length, size) = q.shape[0] * k.shape[1], q.shape[2:]
        scale = size**-0.5
        queries, dys = (x.reshape(groups, -1, length, size) for x in (q, dy))  # [B kv, those of a kv head, T, K]
        keys, values = (x.reshape(groups, length, size) for x in (k, v))
        less_lse = -lse.reshape(groups, -1, length, 1)
        less_sum = -(dys.float() * mixed.reshape(dys.shape)).sum(-1, keepdim=True)
        exact = [x.float() for x in (queries, dys, keys, values)]
        dq = torch.empty(queries.shape, dtype=q.dtype)
        dk, dv = torch.zeros(keys.shape), torch.zeros(values.shape)
        for first in range(0, length, BLOCK):
            stop = min(first + BLOCK, length)
            less_lse_b, less_sum_b, q_b, dy_b, exact_q, exact_dy = (
                x[:, :, first:stop].flatten(1, 2) for x in (less_lse, less_sum, queries, dys, *exact[:2])
            )  # [B kv, queries, ..]
            exact_k, exact_v = (x[:, :stop].transpose(1, 2) for x in exact[2:])
            p = torch.baddbmm(less_lse_b, exact_q, exact_k, alpha=scale).exp_()  # [B kv, queries, keys up to stop]
            p.view(groups, -1, stop - first, stop)[..., first:].tril_()
            ds = torch.baddbmm(less_sum_b, exact_dy, exact_v).mul_(p)
            p, ds = p.to(q.dtype), ds.to(q.dtype)
            dv[:, :stop] += torch.bmm(p.transpose(1, 2), dy_b)
            dk[:, :stop] += torch.bmm(ds.transpose(1, 2), q_b)
            dq[:, :, first:stop] = torch.bmm(ds, keys[:, :stop]).view(groups, -1, stop - first, size)
        return dq.mul_(scale).view(q.shape), dk.mul_(scale).to(k.dtype).view(k.shape), dv.to(v.dtype).view(v.shape)


@cache
def _has_flash() -> bool:
    """Whether torch's operator, which is private, takes what is given here."""
    schemas = torch._C._jit_get_schemas_for_operator("aten::_scaled_dot_product_flash_attention_for_cpu")
    return any([argument.name for argument in schema.arguments][:5] == TAKES for schema in schemas)
