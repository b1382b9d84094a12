"""A group that can be exchanged: what holds it need not be built again when the membership changes.

blocks of the model --> port --> team of generation 3        attach: team of generation 4
"""

from collections.abc import Sequence

import torch

from raymega.comm.group import Group, GroupSpec, ReduceOp, Work


class GroupPort:
    """`Group` that does what the attached one does. Between operations only, `attach` puts another in its place."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def attach(self, group: Group) -> None:
        """Use `group` from here on; it has as many members, and this worker has the same rank in it."""
        assert (group.size, group.rank) == (self._group.size, self._group.rank), "a port keeps its size and rank"
        self._group = group

    @property
    def spec(self) -> GroupSpec:
        return self._group.spec

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None:
        self._group.all_reduce(x, op)

    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        return self._group.start_all_reduce(x, op, out=out)

    def reserve(self, num_bytes: int) -> None:
        self._group.reserve(num_bytes)

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self._group.all_gather(out, x)

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        return self._group.start_all_gather(out, x)

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self._group.reduce_scatter(out, x)

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        return self._group.start_all_to_all(out, x, out_sizes=out_sizes, in_sizes=in_sizes)

    def broadcast(self, x: torch.Tensor, *, src: int) -> None:
        self._group.broadcast(x, src=src)

    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        return self._group.all_gather_bytes(payload)

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work:
        return self._group.start_send(x, dst=dst, tag=tag)

    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work:
        return self._group.start_recv(x, src=src, tag=tag)

    def barrier(self) -> None:
        self._group.barrier()

    def abort(self) -> None:
        self._group.abort()

    def close(self) -> None:
        self._group.close()
