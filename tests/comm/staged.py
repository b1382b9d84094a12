"""Gloo for tensors on a GPU: they travel through host memory, so that several workers can share one GPU.

x on a GPU --copy--> host --gloo--> host --copy, in `wait`--> x, or out
"""

from collections.abc import Collection, Sequence

import torch

from raymega.comm.gloo import GlooFabric
from raymega.comm.group import Group, GroupSpec, ReduceOp, Work


class StagedWork:
    def __init__(self, work: Work, *back: tuple[torch.Tensor, torch.Tensor]) -> None:
        self._work, self._back = work, back

    def wait(self) -> None:
        self._work.wait()
        for host, there in self._back:
            there.copy_(host.view(there.shape))


class StagedGroup:
    """A group whose tensors lie elsewhere than `inner` can read them."""

    def __init__(self, inner: Group) -> None:
        self.inner, self.spec, self.rank, self.size = inner, inner.spec, inner.rank, inner.size
        self.reserve, self.all_gather_bytes, self.barrier = inner.reserve, inner.all_gather_bytes, inner.barrier
        self.abort, self.close = inner.abort, inner.close

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None:
        self.start_all_reduce(x, op).wait()

    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        host = on_host(x)
        return StagedWork(self.inner.start_all_reduce(host, op), (host, x if out is None else out))

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self.start_all_gather(out, x).wait()

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        host = torch.empty(out.shape, dtype=out.dtype)
        return StagedWork(self.inner.start_all_gather(host, on_host(x)), (host, out))

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        host = torch.empty(out.shape, dtype=out.dtype)
        self.inner.reduce_scatter(host, on_host(x))
        out.copy_(host)

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        host = torch.empty(out.shape, dtype=out.dtype)
        work = self.inner.start_all_to_all(host, on_host(x), out_sizes=out_sizes, in_sizes=in_sizes)
        return StagedWork(work, (host, out))

    def broadcast(self, x: torch.Tensor, *, src: int) -> None:
        host = on_host(x)
        self.inner.broadcast(host, src=src)
        x.copy_(host)

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work:
        return self.inner.start_send(on_host(x), dst=dst, tag=tag)

    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work:
        host = torch.empty(x.shape, dtype=x.dtype)
        return StagedWork(self.inner.start_recv(host, src=src, tag=tag), (host, x))


class StagedFabric:
    def __init__(self, inner: GlooFabric) -> None:
        self.inner, self.generation, self.me = inner, inner.generation, inner.me
        self.traffic = inner.traffic
        self._groups: dict[str, StagedGroup] = {}

    def group(self, spec: GroupSpec) -> Group:
        found = self._groups.get(spec.key)
        if found is None:
            found = self._groups[spec.key] = StagedGroup(self.inner.group(spec))
        return found

    def abort(self, *, spare: Collection[str] = ()) -> None:
        self.inner.abort(spare=spare)

    def close(self) -> None:
        self.inner.close()


def on_host(x: torch.Tensor) -> torch.Tensor:
    return x.detach().to("cpu", copy=True)
