"""Memory that the members of a group share if they run on one node.

    each member makes an area (memfd), tells the others its process and file number, and maps theirs
    all could map all   ->  areas, by rank
    one could not       ->  None for everybody: they do not share a node, or may not look at each other's files

The areas have no name in any file system, so nothing can be left behind: they go with the last process that maps them.
"""

import mmap
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import torch

_TOKEN_BYTES = 32  # at the start of an area: proof that a file found under a number is the one that was meant
_HEADER_BYTES = 64

Gather = Callable[[bytes], list[bytes]]
"""Everyone's payload, by rank."""


def share(num_bytes: int, *, rank: int, gather: Gather) -> tuple[torch.Tensor, ...] | None:
    """An area of `num_bytes` of each member, as bytes, by rank; None if not all members can map all.

    All members call it together, and all get areas or all get None.
    """
    token = secrets.token_bytes(_TOKEN_BYTES)
    fd = _make(_HEADER_BYTES + num_bytes)
    try:
        if fd is not None:
            os.pwrite(fd, token, 0)
        announced = gather(f"{_node()} {os.getpid()} {-1 if fd is None else fd} {token.hex()}".encode())
        areas = [_map(text.decode(), own=fd if member == rank else None) for member, text in enumerate(announced)]
        mapped = tuple(area for area in areas if area is not None)
        agreed = gather(b"y" if len(mapped) == len(areas) else b"n")
    finally:
        if fd is not None:
            os.close(fd)
    return mapped if set(agreed) == {b"y"} else None


def _make(num_bytes: int) -> int | None:
    """A file that is memory; None if there is not so much of it."""
    fd = os.memfd_create("raymega", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, num_bytes)
    except OSError:
        os.close(fd)
        return None
    return fd


def _node() -> str:
    """Equal in processes that can name each other by number."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink('/proc/self/ns/pid')}"


def _map(announced: str, *, own: int | None) -> torch.Tensor | None:
    """Map the area that a member announced; None if it is not within reach."""
    node, pid, number, token = announced.split()
    if node != _node() or int(number) < 0:
        return None
    try:
        fd = os.dup(own) if own is not None else os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # gone, or another user's
        return None
    try:
        if os.pread(fd, _TOKEN_BYTES, 0) != bytes.fromhex(token):
            return None
        memory = mmap.mmap(fd, os.fstat(fd).st_size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except OSError:
        return None
    finally:
        os.close(fd)
    return torch.frombuffer(memory, dtype=torch.uint8)[_HEADER_BYTES:]
