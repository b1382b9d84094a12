"""What this machine really does: products, memory, and messages between two processes.

    flops_per_s          [n, n] [n, n] in fp32 and bf16: the best of many blocks, since others disturb and nobody helps
    memory_bytes_per_s   a copy, read and written
    latency_s            half of a message's way there and back; bytes_per_s: of a large one, latency taken off

One thread, as a worker has, and its processor's seconds; on a GPU its own clock is waited for. Two processes talk as
workers do, over gloo.
"""

import hashlib
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from statistics import fmean, quantiles
from typing import Any

import psutil
import torch

from raymega.comm.gloo import GlooFabric
from raymega.comm.group import Group, GroupSpec
from raymega.comm.store import RendezvousStore
from raymega.config.fault import counted
from raymega.driver.process.children import running
from raymega.errors import ClusterError

SIDE = 512
COPY_BYTES = 64 << 20
PINGS, PING_BYTES, LARGE_BYTES, LARGE = 200, 8, 8 << 20, 8
LIMIT_S = 180.0  # two processes load torch, on whatever else the machine does
MEMBERS = ("w0", "w1")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDevice:
    """One device, one worker on it."""

    name: str
    flops_per_s: dict[str, float]
    memory_bytes: float
    memory_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """Between two processes of this machine."""

    latency_s: float
    bytes_per_s: float


def measured_device(*, device: str, blocks: int = 12, of: Callable[[list[float]], float] = max) -> MeasuredDevice:
    """Measure the rates of `device`, cpu or cuda; `of`: which block counts."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
        rates = {name: of(_rates(partial(_product_rate, device, dtype), blocks)) for name, dtype in kinds.items()}
        copied = of(_rates(partial(_copy_rate, device), blocks))
    finally:
        torch.set_num_threads(threads)
    return MeasuredDevice(
        name=device_words(device), flops_per_s=rates, memory_bytes=_memory_bytes(device), memory_bytes_per_s=copied
    )


def measured_together(workers: int) -> MeasuredDevice:
    """Measure a core while as many workers compute as there are: they share memory, caches and the clock's power.

    Rates are the mean over the workers of their upper quartile, since other programs disturb; of one worker alone, as
    `measured_device`.
    Raises: ClusterError if one of them says nothing.
    """
    if workers == 1:
        return measured_device(device="cpu")
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(workers)
    ends = [context.Pipe(duplex=False) for _ in range(workers)]
    processes = [context.Process(target=_compute_among, args=(together, writer)) for _, writer in ends]
    with running(processes):
        found = [_told(reader) for reader, _ in ends]
    names = found[0].flops_per_s
    return MeasuredDevice(
        name=found[0].name,
        flops_per_s={name: fmean(one.flops_per_s[name] for one in found) for name in names},
        memory_bytes=found[0].memory_bytes,
        memory_bytes_per_s=fmean(one.memory_bytes_per_s for one in found),
    )


def measured_link() -> MeasuredLink:
    """Measure messages between two processes of this machine. Raises: ClusterError if they never meet."""
    context = multiprocessing.get_context("spawn")
    store = RendezvousStore.open()
    reader, writer = context.Pipe(duplex=False)
    processes = [context.Process(target=_talk, args=(rank, store.address, writer)) for rank in range(2)]
    try:
        with running(processes):
            if not reader.poll(LIMIT_S):
                raise ClusterError(f"two processes did not exchange a message within {LIMIT_S:.0f} s. Is loopback up?")
            latency_s, large_s = reader.recv()
    finally:
        reader.close()
        writer.close()
        store.close()
    return MeasuredLink(latency_s=latency_s, bytes_per_s=LARGE_BYTES / max(large_s - latency_s, 1e-9))


def device_words(device: str) -> str:
    """`AMD EPYC 7R13`, `NVIDIA H200`."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        named = []
    return named[0] if named else platform.machine()


def hardware_words(device: str) -> str:
    """What a calibration holds for."""
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total / 2**30
    return f"{device_words(device)}, {counted(cores, noun='core')}, {memory:.0f} GiB, torch {torch.__version__}"


def fingerprint(words: str) -> str:
    """Twelve characters that are the same on the same hardware."""
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def _rates(rate: Callable[[], float], blocks: int) -> list[float]:
    return [rate() for _ in range(blocks)]


def _compute_among(together: Barrier, writer: Connection) -> None:
    together.wait(LIMIT_S)
    writer.send(measured_device(device="cpu", of=lambda rates: quantiles(rates, n=4)[-1]))


def _told(reader: Connection) -> MeasuredDevice:
    if not reader.poll(LIMIT_S):
        raise ClusterError(f"a worker that computes beside others said nothing for {LIMIT_S:.0f} s. Is it loaded?")
    found: MeasuredDevice = reader.recv()
    return found


def _product_rate(device: str, dtype: torch.dtype) -> float:
    a = torch.ones(SIDE, SIDE, device=device, dtype=dtype)  # [n, n]
    times = 4 if device == "cpu" else 64
    return 2 * SIDE**3 * times / _seconds(device, lambda: torch.mm(a, a), times)


def _copy_rate(device: str) -> float:
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES * 2 / _seconds(device, lambda: target.copy_(source), 2)


def _seconds(device: str, work: Callable[[], Any], times: int) -> float:
    clock = time.perf_counter if device == "cuda" else time.thread_time  # other programs take no processor's time
    work()
    _settle(device)
    began = clock()
    for _ in range(times):
        work()
    _settle(device)
    return clock() - began


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _memory_bytes(device: str) -> float:
    """Of the device; on CPU, of a core's part of the machine."""
    if device == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory)
    return psutil.virtual_memory().total / (os.cpu_count() or 1)


def _talk(rank: int, address: tuple[str, int], writer: Connection) -> None:
    """One of two processes; rank 0 tells what it measured."""
    torch.set_num_threads(1)
    fabric = GlooFabric.connect(address, me=MEMBERS[rank], generation=1, timeout_s=LIMIT_S)
    group = fabric.group(GroupSpec(key="calibrate", members=MEMBERS))
    small_s = _round_trip_s(group, rank, num_bytes=PING_BYTES, times=PINGS) / 2
    large_s = _round_trip_s(group, rank, num_bytes=LARGE_BYTES, times=LARGE) / 2
    group.barrier()
    if rank == 0:
        writer.send((small_s, large_s))
    fabric.close()


def _round_trip_s(group: Group, rank: int, *, num_bytes: int, times: int) -> float:
    """The fastest of many; the first one warms up."""
    there, back, best = torch.ones(num_bytes // 4), torch.empty(num_bytes // 4), float("inf")
    for _ in range(times + 1):
        began = time.perf_counter()
        if rank == 0:
            group.start_send(there, dst=1).wait()
            group.start_recv(back, src=1).wait()
        else:
            group.start_recv(back, src=0).wait()
            group.start_send(there, dst=0).wait()
        best = min(best, time.perf_counter() - began)
    return best
