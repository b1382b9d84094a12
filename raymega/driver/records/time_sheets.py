"""The workers' time sheets, gathered: the newest of each, and what only this side knows of it.

    asked for ---------- born ------------------- last pulse ------ lost | stopped
       start (Ray, process, imports)   its own sheet      detect | idle

A file of the run's directory is written anew now and then, and at the end; a controller that takes over, or another
launch in the same directory, goes on from it.
"""

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from raymega.driver.records.run_dir import write_whole
from raymega.driver.records.worker_times import Seconds, WorkerTime, read_times
from raymega.errors import StateError
from raymega.plan.plan import WorkerId
from raymega.worker.time_sheet import Spent

EVERY_S = 5.0


class TimeSheets:
    """Of all workers of a run; any thread may call.

    Args:
        began_t: when the launch was asked for: its first workers have been waited for since then.
    """

    def __init__(self, file: Path, *, began_t: float) -> None:
        self._file, self._began_t, self._lock = file, began_t, threading.Lock()
        self._known = {(time.worker, time.born_t): time for time in read_times(file)}
        self._asked: dict[WorkerId, float] = {}
        self._newest: dict[WorkerId, Spent] = {}
        self._written_t = began_t

    def asked(self, workers: Iterable[WorkerId], *, t: float) -> None:
        """These are being started."""
        with self._lock:
            since_t = t if self._asked or self._newest else self._began_t
            for worker in workers:
                self._asked.setdefault(worker, since_t)

    def heard(self, worker: WorkerId, spent: Spent, *, t: float, peak_bytes: int = 0) -> bool:
        """A pulse came, with the most memory so far; whether the file should be written again.

        The one that was least on its way says when the worker's clock began.
        """
        with self._lock:
            self._newest[worker] = spent
            own_s = sum(spent.seconds.values()) + sum(spent.in_hand.values())
            old = self._known.get((worker, spent.born_t))
            from_t = old.from_t if old is not None else min(self._asked.get(worker, t - own_s), t - own_s)
            before_s = min(t - own_s - from_t, old.before_s if old is not None else float("inf"))
            self._known[worker, spent.born_t] = WorkerTime(
                worker=worker, born_t=spent.born_t, from_t=from_t, until_t=from_t + before_s + own_s,
                before_s=before_s, seconds=_sum(spent.seconds, spent.in_hand, {"start": before_s}),
                peak_bytes=peak_bytes,
            )  # fmt: skip
            return t - self._written_t > EVERY_S

    def newest(self) -> dict[WorkerId, Spent]:
        """What each living worker told last."""
        with self._lock:
            return dict(self._newest)

    def lost(self, worker: WorkerId, *, t: float) -> None:
        """It died, and the step that it had in hand with it; what it did since it was last heard of is not known."""
        with self._lock:
            spent = self._newest.pop(worker, None)
            if spent is not None:
                void = {name: -seconds for name, seconds in spent.in_hand.items()}
                self._end(worker, spent, {**void, "replay": sum(spent.in_hand.values())}, rest="detect", t=t)

    def stopped(self, workers: Iterable[WorkerId], *, t: float) -> None:
        """They are ended, for want of work."""
        with self._lock:
            for worker in workers:
                spent = self._newest.pop(worker, None)
                if spent is not None:
                    self._end(worker, spent, {}, rest="idle", t=t)

    def write(self, *, t: float) -> None:
        """Lay them down. No run ends for want of these figures: a disk that is full is the others' matter."""
        with self._lock:
            text, self._written_t = json.dumps([asdict(time) for time in self._known.values()], indent=1), t
        with suppress(StateError):
            write_whole(self._file, text + "\n")

    def _end(self, worker: WorkerId, spent: Spent, more: dict[str, float], *, rest: str, t: float) -> None:
        time = self._known[worker, spent.born_t]
        seconds = _sum(time.seconds, more, {rest: max(0.0, t - time.until_t)})
        self._known[worker, spent.born_t] = replace(time, until_t=max(t, time.until_t), seconds=seconds)


def _sum(*parts: Seconds) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}
