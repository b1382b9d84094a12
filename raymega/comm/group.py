"""What a group of workers can do together, whatever carries it: gloo, NCCL, or threads of one process.

A group belongs to a generation and holds just the workers that need each other. Every wait ends: with the result,
with `GroupBroken` (a peer died, or `abort`), or with `CollectiveTimeout` (the backstop), which names the laggards.
After an error the group is dead; nothing of it is used again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from raymega.plan.plan import WorkerId

ReduceOp = Literal["sum", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group to be made: `key` is unique in its generation, `members` are in rank order."""

    key: str
    members: tuple[WorkerId, ...]


class Work(Protocol):
    """An operation in flight."""

    def wait(self) -> None:
        """Block until the tensor may be read (receive, collective) or reused (send)."""


class Group(Protocol):
    """Collectives and messages among `spec.members`. Tensors are contiguous and on the group's device.

    In-place collectives return when the tensor is complete; the `start_` forms return a `Work` at once.
    All members get the same bits from a reduction. A group of one does nothing and costs nothing.
    """

    @property
    def spec(self) -> GroupSpec: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None: ...
    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        """With `out`, which is shaped like `x`, the result goes there; `x` is not written, and kept until the wait."""

    def reserve(self, num_bytes: int) -> None:
        """By all members: connect, and take memory, so that reductions of so many bytes in all start without a wait."""

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """`out` is [size, *x.shape] or its dim-0 concatenation, contiguous."""

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        """As `all_gather`; both are kept, and neither is written by others, until the wait."""

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """`x` is the dim-0 concatenation of `size` pieces shaped like `out`; `out` gets the sum of piece `rank`."""

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        """`x` is cut into `in_sizes` elements for each rank, `out` into `out_sizes` from each; both are kept."""

    def broadcast(self, x: torch.Tensor, *, src: int) -> None: ...
    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """Everyone's payload, by rank; lengths may differ."""

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work: ...
    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work: ...
    def barrier(self) -> None: ...
    def abort(self) -> None:
        """From any thread: every blocked and every later call of this member raises `GroupBroken`. Idempotent."""

    def close(self) -> None:
        """Free sockets and threads; only when nothing is in flight. Idempotent."""


class Fabric(Protocol):
    """Makes the groups of one generation for one worker."""

    generation: int
    me: WorkerId

    def group(self, spec: GroupSpec) -> Group:
        """Build (blocking until all members did) or return the group of `spec.key`.

        Every member asks for the groups it shares with another in the same order.
        Raises: CollectiveTimeout naming the members that never came; GroupBroken after `abort`.
        """

    def abort(self, *, spare: Collection[str] = ()) -> None:
        """Abort every group but those with the keys `spare`; callable from any thread, while `group` blocks too."""

    def close(self) -> None: ...
