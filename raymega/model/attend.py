"""Causal softmax(q k' / sqrt(K)) v, by the fastest way for its number format, device and length.

    bf16 on a CPU, below 768 tokens   by products, in blocks of queries, both ways
    all others                        torch's, both ways

    of a block of queries       P = softmax(q k' / sqrt(K)), zero above the diagonal        y = P v
                               dv += P' dy
                               dS = P (dy v' - sum(dy y)) / sqrt(K)          dq = dS k          dk += dS' q

Scores and their gradients are fp32, as the sums are; P and dS are rounded to bf16 for the products in which they stand,
which the processor does at twice the pace of fp32. torch's own takes longer both ways, up to where it takes blocks of
256 queries, and its dk and dv lie further from the exact ones. No score outlives its block, as in flash attention: a
backward makes it again. Source: Dao et al. 2022, "FlashAttention" (arXiv 2205.14135), algorithms 1 and 4.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # queries
TORCHS_LENGTH = 768  # from here on torch's blocks are large, and it is as fast


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q [B, heads, T, K], k and v [B, kv heads, T, K] -> [B, heads, T, K]."""
    if q.dtype == torch.bfloat16 and q.device.type == "cpu" and q.shape[2] < TORCHS_LENGTH:
        return _Attend.apply(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # Any: torch's context has no type
        mixed = torch.empty(q.shape, dtype=q.dtype)
        keys, values = k.flatten(0, 1), v.flatten(0, 1)  # [G, T, K]
        queries, out = _by_kv_head(q, mixed, groups=len(keys))
        exact_keys = keys.float()
        for here in _blocks(q.shape[2]):
            p = _weights(queries[:, :, here].flatten(1, 2), exact_keys[:, : here.stop], first=here.start)
            out[:, :, here] = torch.bmm(p.to(q.dtype), values[:, : here.stop]).view_as(out[:, :, here])
        ctx.save_for_backward(q, k, v, mixed)
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, mixed = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        less_sum = (dy.float() * mixed).sum(-1, keepdim=True).mul_(-scale)
        dq = torch.empty(q.shape, dtype=q.dtype)
        keys, values = k.flatten(0, 1), v.flatten(0, 1)
        queries, dys, less_sums, dqs = _by_kv_head(q, dy, less_sum, dq, groups=len(keys))
        exact_keys, exact_values = keys.float(), values.float()
        dk, dv = torch.zeros_like(exact_keys), torch.zeros_like(exact_values)
        for here in _blocks(q.shape[2]):
            q_b, dy_b, less_b = (x[:, :, here].flatten(1, 2) for x in (queries, dys, less_sums))
            p = _weights(q_b, exact_keys[:, : here.stop], first=here.start)
            ds = torch.baddbmm(less_b, dy_b.float(), exact_values[:, : here.stop].transpose(1, 2), alpha=scale).mul_(p)
            p, ds = p.to(q.dtype), ds.to(q.dtype)
            dv[:, : here.stop] += torch.bmm(p.transpose(1, 2), dy_b)
            dk[:, : here.stop] += torch.bmm(ds.transpose(1, 2), q_b)
            dqs[:, :, here] = torch.bmm(ds, keys[:, : here.stop]).view_as(dqs[:, :, here])
        return dq, dk.to(k.dtype).view(k.shape), dv.to(v.dtype).view(v.shape)


def _weights(q: Tensor, k: Tensor, *, first: int) -> Tensor:
    """Those of a block of queries, the first at position `first`, for all keys up to its end; of later ones 0.

    q [G, heads queries, K], k [G, keys, K] fp32 -> [G, heads queries, keys] fp32.
    """
    keys, size = k.shape[1:]
    scores = torch.bmm(q.float().mul_(size**-0.5), k.transpose(1, 2))
    of_block = scores.unflatten(1, (-1, keys - first))[..., first:]  # [G, heads, queries, those keys]
    of_block += torch.full(of_block.shape[2:], -torch.inf).triu_(1)
    return torch.softmax(scores, -1)


def _by_kv_head(*xs: Tensor, groups: int) -> Iterator[Tensor]:
    """[B, heads, T, ..] -> [G, heads of a kv head, T, ..]."""
    return (x.reshape(groups, -1, *x.shape[2:]) for x in xs)


def _blocks(length: int) -> Iterator[slice]:
    """Positions of each block."""
    return (slice(first, min(first + BLOCK, length)) for first in range(0, length, BLOCK))
