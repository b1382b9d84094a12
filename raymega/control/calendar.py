"""How many devices a run may have at this time of day, and why.

    elastic.calendar  08:00 12 devices, 22:00 4 devices      (elastic.timezone)

    ----- 4 -----|--------- 12 ---------|-- 4 --|            what holds before the first entry is yesterday's last
    0            8                      22      24 h

Clocks that are put forward or back: a time that the clock skips comes as much later as was skipped, one that it shows
twice comes the first time, and so no entry is taken up twice. Source: RFC 5545, section 3.3.5. The time and the zone
are arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from raymega.config.fault import counted

DAYS = (-2, -1, 0, 1)  # a zone that goes over to the other side of the date line skips a day


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarEntry:
    """From `minute` of the day on, so many devices."""

    minute: int
    devices: int

    def __str__(self) -> str:
        return f"{self.minute // 60:02d}:{self.minute % 60:02d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """So many devices from unix time `since_t` until `until_t`, with the reason as a sentence."""

    devices: int
    since_t: float
    until_t: float
    reason: str


def due(entries: Sequence[CalendarEntry], *, zone: tzinfo, now: float) -> Due:
    """The entry that holds at unix time `now`.

    Args:
        entries: at least one, by the minute of the day.
    """
    today = datetime.fromtimestamp(now, tz=zone).date()
    days = [datetime(day.year, day.month, day.day) for day in (today + timedelta(days=n) for n in DAYS)]
    instants = sorted(
        ((_instant(day, entry, zone), entry) for day in days for entry in entries), key=lambda row: row[0]
    )  # fmt: skip
    since_t, entry = [row for row in instants if row[0] <= now][-1]
    until_t, following = next(row for row in instants if row[0] > now)
    reason = f"the calendar gives {counted(entry.devices, noun='device')} from {entry} to {following} ({zone})"
    return Due(devices=entry.devices, since_t=since_t, until_t=until_t, reason=reason)


def _instant(midnight: datetime, entry: CalendarEntry, zone: tzinfo) -> float:
    """Unix seconds at which the wall clock of `zone` first shows the entry's time on that day."""
    return (midnight + timedelta(minutes=entry.minute)).replace(tzinfo=zone).timestamp()
