"""What a worker's tensors take of its device, and which errors say that there was too little.

    GPU   the allocator's own count                  torch.OutOfMemoryError
    CPU   growth of the process since it was born    MemoryError, or what torch's CPU allocator says

A kernel that ends the process for want of memory leaves nothing to report: that is a lost worker.
"""

import traceback
from dataclasses import dataclass

import psutil
import torch

IN_A_STEP = frozenset({"compute", "reduce", "decide", "evaluate"})
"""Phases in which the state is whole, and that smaller micro-batches make smaller. What fails in `apply` is lost."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)


def let_go_of(error: BaseException) -> str:
    """Free what the frames of `error` hold, and what the allocator keeps back; its first line."""
    traceback.clear_frames(error.__traceback__)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return (str(error) or type(error).__name__).splitlines()[0]


@dataclass(slots=True, kw_only=True)
class PeakMemory:
    """The most that was taken, as far as it was looked at. Make it when the libraries are loaded."""

    on_cuda: bool
    born_bytes: int
    seen_bytes: int = 0

    @classmethod
    def of(cls, device: str) -> "PeakMemory":
        return cls(on_cuda=device.startswith("cuda"), born_bytes=resident_bytes())

    def look(self) -> int:
        """Look again, and tell the most so far."""
        now = torch.cuda.max_memory_allocated() if self.on_cuda else resident_bytes() - self.born_bytes
        self.seen_bytes = max(self.seen_bytes, now)
        return self.seen_bytes


def resident_bytes() -> int:
    """Of this process."""
    return int(psutil.Process().memory_info().rss)
