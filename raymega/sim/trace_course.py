"""A node trace laid over the few places of a real run: who leaves, who comes, and when, in compressed time.

    trace      30 nodes   29   25   28      as many places as the run has stand for the most nodes that the trace has
    4 places    0 1 2 3    ..   0 2 3   ..   at 100 times the speed: 250 s between two changes are 2.5 s

Which places leave and come back is drawn: a seed gives the same course. Changes too small to show at so few places add
up until they do.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from raymega.errors import ConfigError
from raymega.sim.node_trace import NodeTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Turnover:
    """Places that leave and that come at once. `at_s`: from the beginning."""

    at_s: float
    leaving: tuple[str, ...]
    coming: tuple[str, ...]


def course_of(
    trace: NodeTrace, *, places: Sequence[str], least: int, speed: float, seed: int = 0
) -> tuple[Turnover, ...]:
    """What happens to `places`, by time.

    Args:
        least: places that are there at any time.
        speed: seconds of the trace in one second.
    Raises: ConfigError for a speed that is none.
    """
    if not speed > 0:
        raise ConfigError(f"--speed is {speed:g}; it is how many seconds of the trace pass in one. Give it as 100.")
    dice, there, found = random.Random(seed), sorted(places), list[Turnover]()
    for t_s, nodes in trace.rows:
        wanted = min(len(places), max(least, round(nodes * len(places) / trace.most)))
        leaving = dice.sample(there, max(0, len(there) - wanted))
        away = sorted(set(places) - set(there))
        coming = dice.sample(away, max(0, wanted - len(there)))
        there = sorted((set(there) - set(leaving)) | set(coming))
        if leaving or coming:
            found.append(Turnover(at_s=t_s / speed, leaving=tuple(leaving), coming=tuple(coming)))
    return tuple(found)
