"""Waits for sends, and for collectives, which send too, so that every wait ends.

gloo forgets a send that it has begun to write when the connection ends: it tells those that still wait for the peer,
and those that receive, but not this one (`Pair::signalException` in gloo's transport/tcp/pair.cc passes over them), so
that its wait would end at the group's limit only. So a thread of the group waits for gloo, and the caller for it, with
an eye on the connections:

    caller     wait --put--> ......... done            or: the connection ended, and gloo says nothing of it
    thread                   gloo's own wait           stays behind until the limit, and holds up nobody

A collective runs on a thread of gloo's group already, so its wait looks at the connections itself, now and then.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

LOOK_S = 0.05  # a wait that takes longer looks at the connections
PATIENCE_S = 2.0  # far longer than a collective that is whole may wait for a processor
LOOK_ENDED = "Operation timed out"  # torch's words for that; gloo's own limit has others
GRACE_S = 0.1  # gloo needs milliseconds to say that a connection has ended, where it does


def wait_for_collective(work: Any, *, is_over: Callable[[], bool]) -> None:  # Any: torch has no type for its works
    """Wait for a collective. `is_over`: whether a connection of the group has ended.

    Raises: RuntimeError as gloo does; Forgotten if the connection has ended and gloo says nothing.
    """
    limit_s = LOOK_S
    while True:
        try:
            work.wait(timedelta(seconds=limit_s))
            return
        except RuntimeError as error:
            if LOOK_ENDED not in str(error):
                raise
        if limit_s == PATIENCE_S:
            raise Forgotten("its connection ended while it was under way")
        limit_s = PATIENCE_S if is_over() else LOOK_S


class Forgotten(RuntimeError):
    """A call that gloo goes on waiting for, until the group's limit."""


class SendWaiter:
    """One group's."""

    def __init__(self) -> None:
        self._sends: queue.SimpleQueue[tuple[Any, Future[None]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def wait(self, work: Any, *, is_over: Callable[[], bool]) -> None:  # Any: torch has no type for its works
        """Wait for a send. `is_over`: whether a connection of the group has ended.

        Raises: RuntimeError as gloo does, or if the connection has ended.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=_wait_for_all, args=(self._sends,), name="sends", daemon=True)
            self._thread.start()
        sent: Future[None] = Future()
        self._sends.put((work, sent))
        limit_s = LOOK_S
        while True:
            try:
                return sent.result(timeout=limit_s)
            except TimeoutError:
                if limit_s == GRACE_S:
                    raise RuntimeError("its connection ended while it was sent") from None
                limit_s = GRACE_S if is_over() else LOOK_S

    def close(self) -> None:
        """Let the thread go once it waits for nothing."""
        if self._thread is not None:
            self._sends.put((None, Future()))


def _wait_for_all(sends: "queue.SimpleQueue[tuple[Any, Future[None]]]") -> None:
    while True:
        work, sent = sends.get()
        if work is None:
            return
        try:
            work.wait()
        except RuntimeError as error:
            sent.set_exception(error)
        else:
            sent.set_result(None)
        del work, sent  # else the last buffer would live on
