"""How tests wait for others: until a process has ended, or until something holds of which nobody tells.

Where there is an event to wait for, it is waited for: a turn of a run, a report, a thread's end. This is for the rest.
"""

import threading
import time
from collections.abc import Callable

import psutil

LIMIT_S = 90.0
LOOK_S = 0.002


def await_end(pid: int, *, limit_s: float = LIMIT_S) -> float:
    """Seconds until a process has ended, whosever child it is."""
    began = time.monotonic()
    try:
        psutil.Process(pid).wait(timeout=limit_s)
    except psutil.NoSuchProcess:
        return 0.0
    return time.monotonic() - began


def eventually(holds: Callable[[], bool], *, limit_s: float = LIMIT_S, look_s: float = LOOK_S) -> float:
    """Seconds until `holds`, for what nobody tells: files, sockets and tables of other processes."""
    began, never = time.monotonic(), threading.Event()
    while not holds():
        assert time.monotonic() - began < limit_s, f"not so within {limit_s} s"
        never.wait(look_s)
    return time.monotonic() - began
