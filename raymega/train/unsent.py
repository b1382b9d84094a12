"""What a replica has not sent yet of its gradients: the residual of a sum with fewer bits (error feedback).

    reduce   value = gradient + held        sent: fewer bits of it        left = value - sent    beside `held`
    commit   held = left                    skip, or a step that breaks: `held` stays

State of one contributor, not of its replicas: it hangs on whose gradients were rounded. Wherever state is saved or goes
elsewhere the step before was summed in full, so it is zero there (`is_empty`), and is neither saved nor moved. If just
that step is skipped, it could not be sent (`was_due`): who goes on with the same chunk keeps it, a checkpoint and who
takes over lack it. That, and what is lost with its holder, is told by its norm.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True)
class Unsent:
    """Of one flat gradient. Make it with `none_of`.

    Args:
        held: counts; fp32, in the layout of the gradient.
        left: of the sum in hand; counts once the step commits.
        is_empty: `held` is of a full sum, the same on all replicas.
        was_due: the newest step would have sent it in full, but was skipped.
        leaves: the sum in hand leaves something.
        norm: of `held`.
    """

    held: Tensor
    left: Tensor
    is_empty: bool = True
    was_due: bool = False
    leaves: bool = False
    norm: float = 0.0

    @classmethod
    def none_of(cls, grad: Tensor) -> "Unsent":
        return cls(held=torch.zeros_like(grad), left=torch.zeros_like(grad))

    def end(self, *, commits: bool) -> None:
        """The step is over: if it counts, what was left of it is what is held."""
        self.was_due = not commits and not self.leaves
        if commits:
            self.held, self.left, self.is_empty = self.left, self.held, not self.leaves
            self.norm = float(torch.linalg.vector_norm(self.held))
