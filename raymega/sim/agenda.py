"""Virtual time: what happens when, in order; the clock stands still in between.

12.0 s   a worker is up      12.0 s   another one      13.5 s   a step is committed
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Agenda(Generic[T]):
    """What is to happen; of two things at one time, the one that was put down first comes first.

    `until_s`: whoever asked for the next thing does not wait for longer.
    """

    now: float = 0.0
    until_s: float = 0.0
    _rows: list[tuple[float, int, Callable[[], T | None]]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)

    def put(self, at_s: float, happen: Callable[[], T | None]) -> None:
        """Have `happen` called at `at_s`, not before now; None of it means that nobody hears of it."""
        heapq.heappush(self._rows, (max(at_s, self.now), next(self._numbers), happen))

    @property
    def free_until_s(self) -> float:
        """Nothing is put down before this time, and nobody asks."""
        return min(self.until_s, self._rows[0][0]) if self._rows else self.until_s

    def next(self, until_s: float) -> T | None:
        """Go on to the first thing that is heard of, or to `until_s`."""
        self.until_s = until_s
        while self._rows and self._rows[0][0] <= until_s:
            self.now, _, happen = heapq.heappop(self._rows)
            told = happen()
            if told is not None:
                return told
        self.now = max(self.now, until_s)
        return None
