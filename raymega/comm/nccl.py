"""Groups over NCCL, for workers that compute on GPUs. Not yet run on a GPU.

    group "g3/dp/0"     whole    a raw ProcessGroupNCCL for collectives
    group "g3/pp/0-1"   upward   one for messages from a lower to a higher rank
                        downward one for the other direction: NCCL runs the calls of a communicator one after the other,
                                 so a receive that is posted early would hold up every send

A wait orders the GPU's stream and does not block the host, so that the host can run ahead; tags are not looked at:
messages of one direction arrive in the order of sending. The host meets the outcome in `all_gather_bytes` and
`barrier`, which block it, end at the limit, and raise if the group was aborted: after an abort the kernels that were
under way leave undefined tensors, so nothing may be applied before such a call has returned.
TORCH_NCCL_ASYNC_ERROR_HANDLING is 0 in a worker's process: torch's own watchdog would end it after an abort.
"""

import os
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from raymega.comm.failures import group_broken, timed_out
from raymega.comm.group import Group, GroupSpec, ReduceOp, Work
from raymega.comm.rendezvous import Rendezvous
from raymega.comm.sockets import Address
from raymega.comm.solo import SoloGroup
from raymega.comm.traffic import Traffic
from raymega.plan.plan import WorkerId

_torch: Any = dist  # Any: a build without CUDA lacks ProcessGroupNCCL, and torch's stub most of its methods
_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}
_POLL_S = 20e-6  # guess: far below the time of a step, far above that of a poll


class NcclWork:
    """A call in flight: `wait` makes the current stream wait for it."""

    __slots__ = ("_tensors", "_work")

    def __init__(self, work: dist.Work, *tensors: torch.Tensor) -> None:
        self._work, self._tensors = work, tensors

    def wait(self) -> None:
        self._work.wait()


class NcclGroup:
    """`Group` over three communicators, which NCCL connects when they are first used."""

    def __init__(
        self, *, spec: GroupSpec, rank: int, device: torch.device, timeout_s: float, traffic: Traffic,
        whole: Any, upward: Any, downward: Any,
    ) -> None:  # fmt: skip
        self.spec, self.rank, self.size = spec, rank, len(spec.members)
        self._device, self._timeout_s, self._traffic = device, timeout_s, traffic
        self._whole, self._upward, self._downward = whole, upward, downward
        self._broken: str | None = None

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None:
        self.start_all_reduce(x, op).wait()

    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        self._enter("all_reduce", x.nbytes)
        x = x if out is None else out.copy_(x)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]  # type: ignore[assignment]  # torch's stub has two types for it
        return NcclWork(self._whole.allreduce([x], options), x)

    def reserve(self, num_bytes: int) -> None:
        """A first call connects."""
        self.all_reduce(torch.zeros(1, device=self._device))

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self.start_all_gather(out, x).wait()

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        self._enter("all_gather", x.nbytes)
        return NcclWork(self._whole._allgather_base(out.view(-1), x.view(-1)), x, out)

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self._enter("reduce_scatter", x.nbytes)
        self._whole._reduce_scatter_base(out.view(-1), x.view(-1)).wait()

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        self._enter("all_to_all", x.nbytes)
        return NcclWork(
            self._whole.alltoall_base(out, x, list(out_sizes), list(in_sizes), dist.AllToAllOptions()), x, out
        )

    def broadcast(self, x: torch.Tensor, *, src: int) -> None:
        self._enter("broadcast", x.nbytes)
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = src, 0
        self._whole.broadcast([x], options).wait()

    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        self._enter("all_gather_bytes", len(payload))
        lengths = self._gather_rows(np.array([len(payload)], dtype=np.int64).view(np.uint8)).view(np.int64)[:, 0]
        row = np.zeros(max(int(lengths.max()), 1), dtype=np.uint8)
        row[: len(payload)] = np.frombuffer(payload, dtype=np.uint8)
        rows = self._gather_rows(row)
        return [rows[rank, :length].tobytes() for rank, length in enumerate(lengths)]

    def barrier(self) -> None:
        self._enter("barrier", 0)
        self._gather_rows(np.zeros(1, dtype=np.uint8))

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work:
        self._enter("send", x.nbytes)
        return NcclWork((self._upward if dst > self.rank else self._downward).send([x], dst, 0), x)

    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work:
        self._enter("recv", x.nbytes)
        return NcclWork((self._upward if src < self.rank else self._downward).recv([x], src, 0), x)

    def abort(self) -> None:
        self._break("this worker aborted it")

    def close(self) -> None:
        self._break("this worker closed it")

    def _enter(self, op: str, num_bytes: int) -> None:
        if self._broken is not None:
            raise group_broken(self.spec.key, reason=self._broken)
        self._traffic.add(self.spec.key, op, num_bytes)

    def _break(self, reason: str) -> None:
        first, self._broken = self._broken is None, self._broken or reason
        if first:
            for pg in (self._whole, self._upward, self._downward):
                pg.abort()

    def _gather_rows(self, row: np.ndarray) -> np.ndarray:
        """Everyone's row, by rank, on the host."""
        x = torch.from_numpy(row.copy()).to(self._device)
        out = torch.empty(self.size * len(row), dtype=torch.uint8, device=self._device)
        self._settle(self._whole._allgather_base(out, x))
        rows: np.ndarray = out.cpu().numpy().reshape(self.size, len(row))
        if self._broken is not None:
            raise group_broken(self.spec.key, reason=self._broken)
        return rows

    def _settle(self, work: Any) -> None:
        """Block the host until `work` is done, the group is broken, or the limit is reached."""
        limit = time.monotonic() + self._timeout_s
        while self._broken is None and not work.is_completed():
            if time.monotonic() > limit:
                self._break("a wait reached its limit")
                others = [m for rank, m in enumerate(self.spec.members) if rank != self.rank]
                missing = others if self.size == 2 else []
                raise timed_out(self.spec.key, op="all_gather_bytes", timeout_s=self._timeout_s, missing=missing)
            time.sleep(_POLL_S)
        if self._broken is None:
            work.wait()


class NcclFabric:
    """`Fabric` of one worker with one GPU. Make it with `connect`."""

    def __init__(
        self, *, me: WorkerId, generation: int, timeout_s: float, device: torch.device, rendezvous: Rendezvous
    ) -> None:
        self.me, self.generation, self.timeout_s = me, generation, timeout_s
        self.traffic = Traffic()
        self._device, self._rendezvous = device, rendezvous
        self._groups: dict[str, Group] = {}
        self._aborted = False

    @classmethod
    def connect(
        cls, store: Address, *, me: WorkerId, generation: int, device: torch.device, timeout_s: float = 30.0
    ) -> "NcclFabric":
        """Connect to the store of the generation. Raises: ClusterError if it does not answer."""
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        rendezvous = Rendezvous.connect(store, generation=generation, timeout_s=timeout_s)
        return cls(me=me, generation=generation, timeout_s=timeout_s, device=device, rendezvous=rendezvous)

    def group(self, spec: GroupSpec) -> Group:
        if self._aborted:
            raise group_broken(spec.key, reason=f"{self.me} aborted generation {self.generation}")
        if spec.key not in self._groups:
            self._groups[spec.key] = SoloGroup(spec=spec) if len(spec.members) == 1 else self.build(spec)
        return self._groups[spec.key]

    def abort(self, *, spare: Collection[str] = ()) -> None:
        self._aborted = True
        self._rendezvous.cut()
        for key, group in list(self._groups.items()):
            if key not in spare:
                group.abort()

    def close(self) -> None:
        for group in self._groups.values():
            group.close()
        self._groups.clear()

    def build(self, spec: GroupSpec) -> NcclGroup:
        """A group over NCCL, of however many members."""
        rank = spec.members.index(self.me)
        self._rendezvous.meet(spec, rank=rank, here="nccl")
        whole, upward, downward = (self._communicator(spec, name, rank) for name in ("whole", "upward", "downward"))
        group = NcclGroup(
            spec=spec, rank=rank, device=self._device, timeout_s=self.timeout_s, traffic=self.traffic,
            whole=whole, upward=upward, downward=downward,
        )  # fmt: skip
        if self._aborted:
            group.abort()
        return group

    def _communicator(self, spec: GroupSpec, name: str, rank: int) -> Any:
        options = _torch.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=self.timeout_s)
        store = self._rendezvous.prefixed(f"{spec.key}/{name}")
        return _torch.ProcessGroupNCCL(store, rank, len(spec.members), options)
