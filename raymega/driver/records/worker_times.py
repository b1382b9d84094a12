"""Where the seconds of a run's workers went, as it lies in its directory: what status and summary show.

goodput 91.2% of 1,204.3 worker-seconds went into committed steps, 80.4% into their computing (useful)
    start             36.1 s    3.0%
    useful           968.3 s   80.4%

worker    seconds  start  useful  bubble ...
w0          301.1   3.0%   80.1%    9.2%
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raymega.control.goodput import CATEGORIES, GOOD
from raymega.errors import StateError
from raymega.plan.plan import WorkerId

CATEGORIES_OF_WORKERS = (*CATEGORIES, "validation")
Seconds = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTime:
    """One worker, from when it was asked for until it told of itself last, or ended.

    Args:
        born_t: by its own clock; tells it from others of its name.
        before_s: from when it was asked for until it had a clock of its own.
        seconds: by category; all of them together are `until_t - from_t`.
        peak_bytes: the most memory that its tensors have taken.
    """

    worker: WorkerId
    born_t: float
    from_t: float
    until_t: float
    before_s: float
    seconds: Seconds
    peak_bytes: int = 0


def read_times(file: Path) -> tuple[WorkerTime, ...]:
    """All workers that a run has had; none where nothing was written. Raises: StateError for a file that is torn."""
    try:
        return tuple(_time_of(line) for line in json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError) as error:
        raise StateError(f"{file} cannot be read: {error}. Move it away: it holds figures only") from error


def _time_of(line: Mapping[str, Any]) -> WorkerTime:  # Any: JSON
    """Raises: TypeError, ValueError for one that was not written as this program writes it."""
    time = WorkerTime(**line)
    other = set(time.seconds) - set(CATEGORIES_OF_WORKERS)
    if other:
        raise ValueError(f"{time.worker} has seconds of {', '.join(sorted(other))}, which this version does not know")
    return time


def by_worker(times: Iterable[WorkerTime]) -> dict[WorkerId, dict[str, float]]:
    """Seconds by worker and category; workers of one name in several launches are taken together."""
    found: dict[WorkerId, dict[str, float]] = {}
    for time in times:
        seconds = found.setdefault(time.worker, dict.fromkeys(CATEGORIES_OF_WORKERS, 0.0))
        for name, spent_s in time.seconds.items():
            seconds[name] += spent_s
    return found


def all_of(workers: Mapping[WorkerId, Seconds]) -> dict[str, float]:
    """Worker-seconds of the run by category."""
    return {name: sum(seconds[name] for seconds in workers.values()) for name in CATEGORIES_OF_WORKERS}


def share_of(seconds: Seconds, *categories: str) -> float:
    """The part of all seconds that is in `categories`."""
    total_s = sum(seconds.values())
    return sum(seconds.get(name, 0.0) for name in categories) / total_s if total_s > 0 else 0.0


def goodput_of(seconds: Seconds) -> float:
    """The share of worker-seconds that entered a committed step."""
    return share_of(seconds, *GOOD)


def goodput_words(seconds: Seconds) -> str:
    """The goodput, and what that is."""
    return (
        f"{goodput_of(seconds):.1%} of {sum(seconds.values()):,.1f} worker-seconds went into committed steps, "
        f"{share_of(seconds, 'useful'):.1%} into their computing (useful)"
    )


def table_lines(seconds: Seconds) -> Iterator[str]:
    """One line a category; they add up to all seconds."""
    for name in seconds:
        if seconds[name] > 0:
            yield f"    {name:<12} {seconds[name]:>10,.1f} s {share_of(seconds, name):>7.1%}"


def worker_lines(workers: Mapping[WorkerId, Seconds]) -> Iterator[str]:
    """One line a worker."""
    known = [name for name, spent_s in all_of(workers).items() if spent_s > 0]
    wide = {name: max(len(name), 6) for name in known}
    yield "  ".join([f"{'worker':<8}", f"{'seconds':>9}", *(f"{name:>{wide[name]}}" for name in known)])
    for worker, seconds in sorted(workers.items(), key=lambda item: (len(item[0]), item[0])):
        shares = (f"{share_of(seconds, name):>{wide[name]}.1%}" for name in known)
        yield "  ".join([f"{worker:<8}", f"{sum(seconds.values()):>9,.1f}", *shares])
