"""What a worker does to itself and to its node when it is told to: by process id, never by name.

kill    SIGKILL to itself                    whole node: its raylet and all that raylet has started
stop    SIGSTOP, heartbeats and all          a shell outside wakes them after the time, if the worker lives
cut     its network links down, where it has a network namespace to itself and may; else it stops
fill    every free byte of a disk, in a file without a name: given back with the time or with the process
"""

import errno
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

CHUNK_BYTES = 64 * 2**20
BLOCK_BYTES = 4096
# It looks at the worker every tenth of a second, so that it does not outlive it by more.
_WAKE = """
left=$1; worker=$2; shift
while [ $left -gt 0 ] && kill -0 $worker 2>/dev/null; do sleep 0.1; left=$((left - 1)); done
kill -CONT "$@" 2>/dev/null
"""


def kill(*, whole_node: bool) -> None:
    """End here and now."""
    _signal(_others() if whole_node else (), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def stop(*, whole_node: bool, for_s: float | None) -> None:
    """Stop until woken, for good where no time is given."""
    others = _others() if whole_node else ()
    waker = _waker((os.getpid(), *(other.pid for other in others)), for_s=for_s) if for_s is not None else None
    _signal(others, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    if waker is not None:
        waker.wait()


def cut(*, whole_node: bool, for_s: float | None) -> None:
    """Be heard by nobody."""
    links = [name for _, name in socket.if_nameindex() if name != "lo"] if _has_own_network() else []
    if not links or not all(_set_link(name, "down") for name in links):
        stop(whole_node=whole_node, for_s=for_s)
    elif for_s is not None:
        threading.Thread(target=_raise_links, args=(links, for_s), name="chaos-links", daemon=True).start()


def fill(folder: Path, *, for_s: float) -> None:
    """Leave no byte free on the disk of `folder`, from now on for so long."""
    filler = tempfile.TemporaryFile(dir=folder)  # closed by the thread, or with the process
    _allocate(filler)
    threading.Thread(target=_free, args=(filler, for_s), name="chaos-disk", daemon=True).start()


def _others() -> tuple[psutil.Process, ...]:
    """This node's raylet, and all that it has started but this process; nothing where there is none."""
    raylet = psutil.Process(os.getppid())
    if raylet.name() != "raylet":
        return ()
    return (raylet, *(child for child in raylet.children(recursive=True) if child.pid != os.getpid()))


def _signal(processes: tuple[psutil.Process, ...], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _waker(pids: tuple[int, ...], *, for_s: float) -> "subprocess.Popen[bytes]":
    tenths = max(1, round(10 * for_s))
    return subprocess.Popen(
        ["/bin/sh", "-c", _WAKE, "waker", str(tenths), *map(str, pids)],
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _has_own_network() -> bool:
    try:
        return os.readlink("/proc/self/ns/net") != os.readlink("/proc/1/ns/net")
    except PermissionError:
        return False


def _set_link(name: str, state: str) -> bool:
    try:
        return subprocess.run(["ip", "link", "set", name, state], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _raise_links(names: list[str], after_s: float) -> None:
    time.sleep(after_s)
    for name in names:
        _set_link(name, "up")


def _allocate(filler: IO[bytes]) -> None:
    size, chunk = 0, CHUNK_BYTES
    while chunk >= BLOCK_BYTES:
        try:
            os.posix_fallocate(filler.fileno(), size, chunk)
            size += chunk
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            chunk //= 2


def _free(filler: IO[bytes], after_s: float) -> None:
    time.sleep(after_s)
    filler.close()
