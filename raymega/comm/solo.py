"""A group of one: nothing travels, nothing is counted, nothing can break.

With it, code that reduces over an axis of size 1 needs no special case and costs a method call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from raymega.comm.failures import group_broken
from raymega.comm.group import GroupSpec, ReduceOp, Work


class Finished:
    """Work that is complete already."""

    def wait(self) -> None:
        return None


@dataclass(slots=True, kw_only=True)
class SoloGroup:
    """`Group` of a single member."""

    spec: GroupSpec
    rank: int = 0
    size: int = 1
    _aborted: bool = field(default=False)

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None:
        self._check()

    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        self._check()
        if out is not None:
            out.copy_(x)
        return Finished()

    def reserve(self, num_bytes: int) -> None:
        self._check()

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self.start_all_gather(out, x)

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        self._check()
        out.view(-1).copy_(x.view(-1))
        return Finished()

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self._check()
        out.view(-1).copy_(x.view(-1))

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        self._check()
        out.copy_(x)
        return Finished()

    def broadcast(self, x: torch.Tensor, *, src: int) -> None:
        self._check()

    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        self._check()
        return [payload]

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work:
        raise AssertionError("a group of one has no peer to send to")

    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work:
        raise AssertionError("a group of one has no peer to receive from")

    def barrier(self) -> None:
        self._check()

    def abort(self) -> None:
        self._aborted = True

    def close(self) -> None:
        return None

    def _check(self) -> None:
        if self._aborted:
            raise group_broken(self.spec.key, reason="it was aborted")
