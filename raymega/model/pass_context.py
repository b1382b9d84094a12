"""What a forward pass knows besides its input: whose samples these are, at which step, and whether this is training."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """Randomness in a pass hangs on this, on the seed and on the element; never on rank, replica or call count.

    Args:
        step: committed steps before this one.
        samples: [B] int64 on the CPU, positions in the run's endless order of samples.
        training: False switches dropout off.
    """

    step: int
    samples: Tensor
    training: bool
