"""Cross entropy over a vocabulary that is cut over the team, without anyone seeing all logits.

    loss of a position = log(sum_v exp(logit_v)) - logit_target

    shard i:  logits_i = h W_i'      m_i = max      s_i = sum exp(logits_i - m_i)      t_i = logit of the target, or 0
    team:     M = max m_i            log Z = M + log(sum s_i exp(m_i - M))             t = sum t_i
    backward: dlogits_i = exp(logits_i - log Z) - [target]

Logits are made and exponentiated a few rows at a time while they are in cache, and live in one buffer that turns from
logits to exponentials to gradients. Padding rows of W are masked to -inf, so they take no probability and no gradient.
Whatever the format of h and W, all is fp32 from the logits to their gradient. The result is a sum over the trained
positions; nothing is divided here.
Source: Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raymega.layout.shard_box import Box
from raymega.model.backward import add_to
from raymega.model.products import linear
from raymega.model.tp_embedding import local_rows
from raymega.model.tp_linear import add_weight_grad, input_grad
from raymega.model.tp_team import Team

CHUNK_ELEMENTS = 1 << 18  # logits handled at once: 1 MiB, which a core's cache holds


def vocab_loss_sum(
    hidden: Tensor, *, weight: Tensor, targets: Tensor, mask: Tensor | None, box: Box, team: Team
) -> Tensor:
    """Sum of the token losses at the trained positions, an fp32 scalar; differentiable once.

    Args:
        hidden: [B, T/tp or T, D].
        weight: [rows, D], of which the first box.sizes[0] are rows of the vocabulary.
        targets: [B, T] int64.
        mask: [B, T] bool, True where the target is trained; None: everywhere.
    """
    return _VocabLoss.apply(hidden, weight, targets, mask, box, team)


class _VocabLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, mask: Tensor | None, box: Box, team: Team
    ) -> Tensor:
        rows, held = local_rows(targets.reshape(-1), box=box)  # [N]
        trained = torch.ones_like(held) if mask is None else mask.reshape(-1)
        h = team.spread(hidden).reshape(-1, hidden.shape[-1])  # [N, D]
        exps, top, total, at_target = _exponentials(h, weight=weight, rows=rows, held=held, vocab=box.sizes[0])
        highest = team.max_(top.clone())
        sums = team.sum_(torch.stack([total * (top - highest).exp_(), at_target]))  # [2, N]
        log_z = highest + sums[0].log()
        ctx.save_for_backward(hidden, exps, (top - log_z).exp_(), rows, held & trained, trained)
        ctx.weight, ctx.team = weight, team
        return ((log_z - sums[1]) * trained).sum(dtype=torch.float64).float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        hidden, exps, share, rows, has_target, trained = ctx.saved_tensors
        dlogits = exps.mul_((share * trained * scale)[:, None])  # [N, rows of W], in place: used once
        dlogits.scatter_add_(1, rows[:, None], -(has_target * scale)[:, None])
        h = ctx.team.spread(hidden)
        dlogits = dlogits.view(*h.shape[:-1], -1).to(h.dtype)  # [B, T, rows of W]
        weight = ctx.weight
        dhidden = ctx.team.start_collect(input_grad(dlogits, weight=weight))
        add_to(weight, lambda: add_weight_grad(weight, dy=dlogits, x=h))
        return dhidden.wait(), None, None, None, None, None


def _exponentials(
    h: Tensor, *, weight: Tensor, rows: Tensor, held: Tensor, vocab: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp(logits - top) [N, rows of W], and of each position: top, the sum of it, and the target's logit or 0."""
    exps = h.new_empty(h.shape[0], weight.shape[0], dtype=torch.float32)
    top, total, at_target = (h.new_empty(h.shape[0], dtype=torch.float32) for _ in range(3))
    step = max(1, CHUNK_ELEMENTS // weight.shape[0])
    for start in range(0, h.shape[0], step):
        part = slice(start, start + step)
        logits = linear(h[part], weight).float()
        logits[:, vocab:] = -torch.inf
        at_target[part] = logits.gather(1, rows[part, None])[:, 0].masked_fill_(~held[part], 0.0)
        # A shard without a row of the vocabulary has -inf everywhere; a finite top keeps its exponentials 0.
        torch.amax(logits, dim=1, out=top[part]).clamp_(min=torch.finfo(top.dtype).min)
        torch.sum(torch.exp(logits.sub_(top[part, None]), out=exps[part]), dim=1, out=total[part])
    return exps, top, total, at_target


def gathered_logits(hidden: Tensor, *, weight: Tensor, box: Box, vocab_size: int, team: Team) -> Tensor:
    """All logits [B, T, V] on every shard: for sampling and export checks, never for training."""
    with torch.no_grad():
        local = linear(team.spread(hidden), weight)  # [B, T, rows of W]
        stacked = team.gather_stacked(local)  # [tp, B, T, rows of W]
    part = -(-vocab_size // team.size)
    return torch.cat([logits[..., :part] for logits in stacked], dim=-1)[..., :vocab_size]
