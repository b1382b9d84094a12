"""Where a value lies on an axis, and which values are written beside it.

ticks(0, 430)       0 100 200 300 400          1, 2 or 5 times a power of ten apart
time_words(90)      1.5 min
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

TIME_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Values from `low` to `high` lie between the places `begin` and `end`, which may run downwards."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Where `value` lies."""
        span = (self.high - self.low) or 1.0
        return self.begin + (value - self.low) / span * (self.end - self.begin)


def ticks(low: float, high: float, *, most: int = 6) -> tuple[float, ...]:
    """Round values from `low` to `high`, at most so many; one where they are equal.

    >>> ticks(0, 430)
    (0.0, 100.0, 200.0, 300.0, 400.0)
    >>> ticks(4.13, 7.63, most=4)
    (5.0, 6.0, 7.0)
    """
    if high <= low:
        return (low,)
    step = step_for(high - low, most=most)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return tuple(round(number * step, 10) for number in range(first, last + 1))


def step_for(span: float, *, most: int) -> float:
    """The smallest of 1, 2, 5, 10, .. and their tenths that cuts `span` into less than `most` parts."""
    power = 10.0 ** floor(log10(span / most))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if span / (power * factor) < most)


def step_ticks(first: int, last: int, *, most: int = 8) -> tuple[int, ...]:
    """Whole numbers of an axis of steps: the first, the round ones, the last.

    >>> step_ticks(1, 430, most=6)
    (1, 100, 200, 300, 430)
    """
    apart = max(1.0, step_for(last - first, most=most)) if last > first else 1.0
    inner = [int(tick) for tick in ticks(first, last, most=most) if tick == int(tick)]
    kept = [tick for tick in inner if first + apart / 2 <= tick <= last - apart / 2]
    return (first, *kept, *((last,) if last > first else ()))


def value_words(value: float, *, among: Sequence[float]) -> str:
    """`value` with as many digits as tell it from its neighbours on the axis."""
    apart = min((b - a for a, b in pairwise(among)), default=abs(value) or 1.0)
    digits = max(0, ceil(-log10(apart) - 1e-9)) if apart > 0 else 2
    return f"{value:,.{min(digits, 6)}f}"


def time_words(seconds: float) -> str:
    """Seconds as people say them.

    >>> time_words(0.0124), time_words(45), time_words(90), time_words(41000)
    ('12.4 ms', '45 s', '1.5 min', '11.4 h')
    """
    if 0 < abs(seconds) < 1:
        return f"{seconds * 1000:.3g} ms"
    for unit, size in TIME_UNITS:
        if seconds >= size * (1.5 if unit != "s" else 0):
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:g} s"


def time_ticks(span_s: float, *, most: int = 8) -> tuple[float, ...]:
    """Round times from 0 to `span_s`."""
    if span_s <= 10:
        return ticks(0.0, span_s, most=most) if span_s > 0 else (0.0,)
    steps = (5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0)
    step = next((step for step in steps if span_s / step < most), ceil(span_s / most / 86400.0) * 86400.0)
    return tuple(step * number for number in range(int(span_s / step) + 1))
