"""Do the groups that raymega builds over NCCL work between the GPUs of this machine? One thread a GPU, two generations.

ok       nccl build   3 communicators of 4 GPUs in 1.2 s
ok       nccl sum     64 MiB in 0.9 ms: 75 GB/s
ok       nccl send    both directions at once
ok       nccl abort   a blocked worker is free after 0.02 s
ok       nccl again   the next generation in 0.4 s
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from raymega.cli.doctor import Finding, Standing
from raymega.errors import ClusterError

LIMIT_S = 60.0
SUMMED_BYTES = 64 * 2**20
NO_GPU = "untested: no CUDA device here. Run it on a machine with the GPUs that a run is to use"


def nccl_findings() -> Iterator[Finding]:
    """Look at one thing after the other; ends at the first that fails."""
    import torch

    if not torch.cuda.is_available():
        yield Finding(standing="warning", subject="nccl", detail=NO_GPU)
        return
    crew = _Crew(torch.cuda.device_count())
    for subject, look in crew.looks():
        standing: Standing = "ok"
        try:
            detail = look()
        except (ClusterError, RuntimeError) as error:
            standing, detail = "missing", f"{error}. See what NCCL says with NCCL_DEBUG=INFO"
        yield Finding(standing=standing, subject=f"nccl {subject}", detail=detail)
        if standing != "ok":
            break
    crew.close()


class _Crew:
    """A worker for each GPU."""

    def __init__(self, size: int) -> None:
        from raymega.comm.store import RendezvousStore

        self._size, self._store = size, RendezvousStore.open()
        self._members = tuple(f"w{rank}" for rank in range(size))
        self._pool = ThreadPoolExecutor(size)
        self._fabrics: list[Any] = []
        self._groups: list[Any] = []

    def looks(self) -> Iterator[tuple[str, Callable[[], str]]]:
        yield "build", lambda: f"3 communicators of {self._size} GPUs in {self._build(generation=1):.1f} s"
        yield "sum", self._sum
        if self._size > 1:
            yield "send", self._send
            yield "abort", self._abort
        yield "again", lambda: f"the next generation in {self._build(generation=2):.1f} s"

    def close(self) -> None:
        self._leave()
        self._pool.shutdown()
        self._store.close()

    def _leave(self) -> None:
        for broken in (*self._groups, *self._fabrics):
            broken.abort()
            broken.close()
        self._groups, self._fabrics = [], []

    def _build(self, *, generation: int) -> float:
        import torch

        from raymega.comm.group import GroupSpec
        from raymega.comm.nccl import NcclFabric

        self._leave()
        spec, began = GroupSpec(key=f"g{generation}/doctor", members=self._members), time.perf_counter()

        def build(rank: int) -> Any:
            device = torch.device("cuda", rank)
            torch.cuda.set_device(device)
            fabric = NcclFabric.connect(
                self._store.address, me=self._members[rank], generation=generation, device=device, timeout_s=LIMIT_S
            )
            self._fabrics.append(fabric)
            group = fabric.build(spec)
            group.barrier()  # NCCL connects at first use
            return group

        self._groups = list(self._all(build))
        return time.perf_counter() - began

    def _sum(self) -> str:
        import torch

        def add(rank: int) -> float:
            group, ones = self._groups[rank], torch.ones(SUMMED_BYTES // 4, device=f"cuda:{rank}")
            group.all_reduce(ones)
            group.barrier()
            began = time.perf_counter()
            group.all_reduce(ones)
            group.barrier()
            seconds = time.perf_counter() - began
            if not bool((ones == self._size**2).all()):
                raise ClusterError(f"GPU {rank} has {float(ones[0])} where {self._size**2} is the sum")
            return seconds

        seconds = max(self._all(add))
        return f"64 MiB in {1e3 * seconds:.1f} ms: {SUMMED_BYTES / seconds / 1e9:,.0f} GB/s"

    def _send(self) -> str:
        import torch

        def swap(rank: int) -> None:
            group, other = self._groups[rank], rank ^ 1
            if other >= self._size:
                return group.barrier()
            mine, theirs = (torch.full((1024,), float(value), device=f"cuda:{rank}") for value in (rank, -1))
            early = group.start_recv(theirs, src=other)
            group.start_send(mine, dst=other).wait()
            early.wait()
            group.barrier()
            if float(theirs[0]) != other:
                raise ClusterError(f"GPU {rank} received {float(theirs[0])} from GPU {other}")

        self._all(swap)
        return "both directions at once"

    def _abort(self) -> str:
        blocked = threading.Event()

        def wait_alone() -> float:
            blocked.set()
            try:
                self._groups[0].barrier()
            except ClusterError:
                return time.perf_counter()
            raise ClusterError("a barrier that the others did not enter was passed")

        waiting = self._pool.submit(wait_alone)
        blocked.wait()
        began = time.perf_counter()
        self._groups[0].abort()
        return f"a blocked worker is free after {waiting.result(LIMIT_S) - began:.2f} s"

    def _all(self, work: Callable[[int], Any]) -> Sequence[Any]:
        return list(self._pool.map(work, range(self._size)))
