"""Things that are loaded late: in the process that uses them, and by one thread at a time.

Libraries load one another. Where two threads begin with two of them at once, each comes to wait for the other's half;
Python lets one of them go on with a module that is not whole, that import fails, and torch ends the process where it is
loaded a second time.
"""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LOADING = threading.RLock()  # the modules of a process are shared by its threads, and so is this


@contextmanager
def loading() -> Iterator[None]:
    """For an import within a function that any thread may call."""
    with _LOADING:
        yield


def named(path: str) -> Callable[..., Any]:  # Any: whatever the name stands for
    """The callable that `module:name` means."""
    module, _, name = path.partition(":")
    with loading():
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
