"""A watcher of the loop in a thread of its own: made there, told there, so that nothing it does holds up a run."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from raymega.control.loop import Turn

TICK_S = 5.0


class Sink(Protocol):
    """A watcher that is to be closed."""

    def saw(self, turn: Turn) -> None: ...
    def tick(self) -> None:
        """Some seconds have passed, with turns or without."""

    def close(self) -> None: ...


class InThread:
    """Passes turns on to the sink that `make` makes, in order; `close` waits until all have been seen.

    A sink that fails is left alone from then on: its error is printed to the controller's log, the run goes on.
    """

    def __init__(self, make: Callable[[], Sink], *, tick_s: float = TICK_S) -> None:
        self._make, self._tick_s = make, tick_s
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name="sink", daemon=True)
        self._thread.start()

    def saw(self, turn: Turn) -> None:
        self._turns.put(turn)

    def close(self) -> None:
        self._turns.put(None)
        self._thread.join()

    def _live(self) -> None:
        sink, due_t = self._make(), time.monotonic() + self._tick_s
        while True:
            try:
                turn = self._turns.get(timeout=max(0.0, due_t - time.monotonic()))
            except queue.Empty:
                sink.tick()
                due_t = time.monotonic() + self._tick_s
                continue
            if turn is None:
                break
            sink.saw(turn)
        sink.close()
