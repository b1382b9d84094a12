"""Looks at every source of a node, each in a thread of its own, and tells a new notice once.

source.look() -> Reading -> is it new? -> leave(notice) -> refused: told again after the next look
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial

from raymega.driver.process.threads import Failed, start_thread
from raymega.driver.spot.notice import Notice
from raymega.driver.spot.sources import Source

POLL_S = 2.0  # clouds ask for one look in five seconds, or more
Leave = Callable[[Source, Notice], str]
"""Has the node left; returns why it cannot, empty when it is under way."""


class SpotWatch:
    """The watch over one node."""

    def __init__(self, sources: Iterable[Source], *, leave: Leave, failed: Failed, poll_s: float = POLL_S) -> None:
        self._leave, self._poll_s = leave, poll_s
        self._closed, self._telling = threading.Event(), threading.Lock()
        self._told: set[str] = set()
        for source in sources:
            start_thread(partial(self._watch, source), name=f"notices of {source.name}", failed=failed)

    def close(self) -> None:
        """Tell nothing more; a look that is under way ends by itself."""
        with self._telling:
            self._closed.set()

    def _watch(self, source: Source) -> None:
        said = ""
        while not self._closed.is_set():
            reading = source.look()
            if reading.reason != said:
                said = reading.reason
                print(f"notices of {source.name}: {said}", flush=True)
            if reading.notice is not None:
                self._tell(source, reading.notice)
            self._closed.wait(self._poll_s)

    def _tell(self, source: Source, notice: Notice) -> None:
        with self._telling:
            if self._closed.is_set() or notice.cause in self._told:
                return
            refused = self._leave(source, notice)
            if refused:
                print(f"{notice.cause}: {refused}", flush=True)
            else:
                self._told.add(notice.cause)
