"""Threads whose end is known: one that breaks tells so, else a run would wait for it for ever."""

import sys
import threading
from collections.abc import Callable

Failed = Callable[[BaseException], None]


def start_thread(work: Callable[[], None], *, name: str, failed: Failed) -> threading.Thread:
    """Run `work` in a thread that does not keep the process alive; `failed` is told what it raises, if anything."""

    def told() -> None:
        try:
            work()
        finally:
            error = sys.exception()
            if error is not None:
                failed(error)

    thread = threading.Thread(target=told, name=name, daemon=True)
    thread.start()
    return thread
