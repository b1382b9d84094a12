"""What a worker has to say, numbered, until the controller has read it - and for a while after that.

What was read may have died with the controller that read it, before it was written down. So the newest reports are
kept, and a controller that takes over reads them again; each of them, heard twice, counts once.
"""

import threading
from collections import deque

from raymega.worker.interface import Report

KEPT = 256  # far above what a controller hears between two writes of its journal


class Reports:
    """A numbered queue with a blocking read; reading with a higher `since` lets go of all but the newest before it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reports: deque[tuple[int, Report]] = deque()
        self._next = 1
        self._closed = False

    def add(self, report: Report) -> None:
        with self._changed:
            self._reports.append((self._next, report))
            self._next += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let every reader return at once from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def since(self, number: int, *, wait_s: float) -> tuple[tuple[int, Report], ...]:
        """Reports numbered above `number`; waits up to `wait_s` for the first."""
        with self._changed:
            while len(self._reports) > KEPT and self._reports[0][0] <= number:
                self._reports.popleft()
            self._changed.wait_for(lambda: self._next - 1 > number or self._closed, timeout=wait_s)
            return tuple(report for report in self._reports if report[0] > number)
