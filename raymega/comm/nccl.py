"""Groups over NCCL, for workers that compute on GPUs. Not yet run on a GPU.

    group "g3/dp/0"     whole    a raw ProcessGroupNCCL for collectives
    group "g3/pp/0-1"   upward   one for messages from a lower to a higher rank
                        downward one for the other direction: NCCL runs the calls of a communicator one after the other,
                                 so a receive that is posted early would hold up every send

NCCL connects a communicator at its first call, which blocks the host until all members make theirs, whoever dies
meanwhile. So all members connect in one order when a group is built, on a thread that can be left behind.

A wait orders the GPU's stream and does not block the host, so that the host can run ahead; tags are not looked at:
messages of one direction arrive in the order of sending. The host meets the outcome in `all_gather_bytes` and
`barrier`, which block it, end at the limit, and raise if the group was aborted: after an abort the kernels that were
under way leave undefined tensors, so nothing may be applied before such a call has returned.
What NCCL says of a peer that is gone, or of a communicator that was aborted meanwhile, breaks the group as well.
TORCH_NCCL_ASYNC_ERROR_HANDLING is 0 in a worker's process: torch's own watchdog would end it after an abort.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
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
from raymega.errors import ClusterError
from raymega.metrics import generation_words
from raymega.plan.plan import WorkerId

_torch: Any = dist  # Any: a build without CUDA lacks ProcessGroupNCCL, and torch's stub most of its methods
_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}
_POLL_S = 20e-6  # guess: far below the time of a step, far above that of a poll
_LOOK_S = 0.02  # guess: how often one who waits for a connection looks whether to leave


class NcclWork:
    """A call in flight: `wait` makes the current stream wait for it."""

    __slots__ = ("_group", "_tensors", "_work")

    def __init__(self, group: "NcclGroup", work: dist.Work, *tensors: torch.Tensor) -> None:
        self._group, self._work, self._tensors = group, work, tensors

    def wait(self) -> None:
        try:
            self._work.wait()
        except dist.DistError as error:
            raise self._group.failed(error) from error


class NcclGroup:
    """`Group` over three communicators. `connect` it before anything else."""

    def __init__(
        self, *, spec: GroupSpec, rank: int, device: torch.device, timeout_s: float, traffic: Traffic,
        whole: Any, upward: Any, downward: Any,
    ) -> None:  # fmt: skip
        self.spec, self.rank, self.size = spec, rank, len(spec.members)
        self._device, self._timeout_s, self._traffic = device, timeout_s, traffic
        self._whole, self._upward, self._downward = whole, upward, downward
        self._broken: str | None = None

    def connect(self, *, is_over: Callable[[], bool]) -> None:
        """Make the first calls, in an order that all members share; the two of a pair send to each other.

        Raises: GroupBroken if somebody is lost, or `is_over`; CollectiveTimeout.
        """
        done = threading.Event()
        failures: list[dist.DistError] = []

        def first_calls() -> None:
            try:
                self._first_calls()
            except dist.DistError as error:
                failures.append(error)
            done.set()

        threading.Thread(target=first_calls, name=f"connects-{self.spec.key}", daemon=True).start()
        limit = time.monotonic() + self._timeout_s
        while not done.wait(_LOOK_S):
            if is_over():
                self._break("this worker left while it was built")
            if self._broken is not None:
                raise group_broken(self.spec.key, reason=self._broken)
            if time.monotonic() > limit:
                raise self._late("building")
        if failures:
            raise self.failed(failures[0]) from failures[0]

    def _first_calls(self) -> None:
        token = torch.zeros(1, device=self._device)
        self._whole.allreduce([token], dist.AllreduceOptions()).wait()
        for pg, sender in ((self._upward, 0), (self._downward, 1)) if self.size == 2 else ():
            (pg.send if self.rank == sender else pg.recv)([token], 1 - self.rank, 0).wait()

    def all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum") -> None:
        self.start_all_reduce(x, op).wait()

    def start_all_reduce(self, x: torch.Tensor, op: ReduceOp = "sum", *, out: torch.Tensor | None = None) -> Work:
        x = x if out is None else out.copy_(x)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]  # type: ignore[assignment]  # torch's stub has two types for it
        return self._start("all_reduce", lambda: self._whole.allreduce([x], options), x)

    def reserve(self, num_bytes: int) -> None:
        """It is connected; NCCL's own buffers are of one size."""

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self.start_all_gather(out, x).wait()

    def start_all_gather(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        return self._start("all_gather", lambda: self._whole._allgather_base(out.view(-1), x.view(-1)), x, out)

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        flat_out, flat_x = out.view(-1), x.view(-1)
        self._start("reduce_scatter", lambda: self._whole._reduce_scatter_base(flat_out, flat_x), x, out).wait()

    def start_all_to_all(
        self, out: torch.Tensor, x: torch.Tensor, *, out_sizes: Sequence[int], in_sizes: Sequence[int]
    ) -> Work:
        sizes = list(out_sizes), list(in_sizes)
        return self._start(
            "all_to_all", lambda: self._whole.alltoall_base(out, x, *sizes, dist.AllToAllOptions()), x, out
        )

    def broadcast(self, x: torch.Tensor, *, src: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = src, 0
        self._start("broadcast", lambda: self._whole.broadcast([x], options), x).wait()

    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        self._traffic.add(self.spec.key, "all_gather_bytes", len(payload))
        lengths = self._gather_rows(np.array([len(payload)], dtype=np.int64).view(np.uint8)).view(np.int64)[:, 0]
        row = np.zeros(max(int(lengths.max()), 1), dtype=np.uint8)
        row[: len(payload)] = np.frombuffer(payload, dtype=np.uint8)
        rows = self._gather_rows(row)
        return [rows[rank, :length].tobytes() for rank, length in enumerate(lengths)]

    def barrier(self) -> None:
        self._traffic.add(self.spec.key, "barrier", 0)
        self._gather_rows(np.zeros(1, dtype=np.uint8))

    def start_send(self, x: torch.Tensor, *, dst: int, tag: int = 0) -> Work:
        pg = self._upward if dst > self.rank else self._downward
        return self._start("send", lambda: pg.send([x], dst, 0), x)

    def start_recv(self, x: torch.Tensor, *, src: int, tag: int = 0) -> Work:
        pg = self._upward if src < self.rank else self._downward
        return self._start("recv", lambda: pg.recv([x], src, 0), x)

    def abort(self) -> None:
        self._break("this worker aborted it")

    def close(self) -> None:
        self._break("this worker closed it")

    def failed(self, error: Exception) -> ClusterError:
        """The error to raise for what NCCL says; ends the group's part in this worker."""
        self._break(f"NCCL says: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return group_broken(self.spec.key, reason=str(self._broken))

    def _start(self, op: str, begin: Callable[[], Any], x: torch.Tensor, *others: torch.Tensor) -> NcclWork:
        """Begin a call with `x` and `others`, which are kept until it is waited for."""
        self._traffic.add(self.spec.key, op, x.nbytes)
        return NcclWork(self, self._begun(begin), x, *others)

    def _begun(self, begin: Callable[[], Any]) -> Any:
        if self._broken is not None:
            raise group_broken(self.spec.key, reason=self._broken)
        try:
            return begin()
        except dist.DistError as error:
            raise self.failed(error) from error

    def _break(self, reason: str) -> None:
        first, self._broken = self._broken is None, self._broken or reason
        if first:
            for pg in (self._whole, self._upward, self._downward):
                with suppress(dist.DistError):  # one that cannot be ended in time holds up no other
                    pg.abort()

    def _gather_rows(self, row: np.ndarray) -> np.ndarray:
        """Everyone's row, by rank, on the host."""
        x = torch.from_numpy(row.copy()).to(self._device)
        out = torch.empty(self.size * len(row), dtype=torch.uint8, device=self._device)
        self._settle(self._begun(lambda: self._whole._allgather_base(out, x)))
        rows: np.ndarray = out.cpu().numpy().reshape(self.size, len(row))
        if self._broken is not None:
            raise group_broken(self.spec.key, reason=self._broken)
        return rows

    def _settle(self, work: Any) -> None:
        """Block the host until `work` is done, the group is broken, or the limit is reached."""
        limit = time.monotonic() + self._timeout_s
        while self._broken is None and not work.is_completed():
            if time.monotonic() > limit:
                raise self._late("all_gather_bytes")
            time.sleep(_POLL_S)
        if self._broken is None:
            NcclWork(self, work).wait()

    def _late(self, op: str) -> ClusterError:
        self._break("a wait reached its limit")
        others = [m for rank, m in enumerate(self.spec.members) if rank != self.rank]
        missing = others if self.size == 2 else []
        return timed_out(self.spec.key, op=op, timeout_s=self._timeout_s, missing=missing)


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
            raise group_broken(spec.key, reason=f"{self.me} aborted {generation_words(self.generation)}")
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
        group.connect(is_over=lambda: self._aborted)
        if self._aborted:
            group.abort()
        return group

    def _communicator(self, spec: GroupSpec, name: str, rank: int) -> Any:
        options = _torch.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=self.timeout_s)
        store = self._rendezvous.prefixed(f"{spec.key}/{name}")
        return _torch.ProcessGroupNCCL(store, rank, len(spec.members), options)
