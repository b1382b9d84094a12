"""Devices by time of day: which entry holds, since when, until when, and what clocks that change do to it."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.control.calendar import CalendarEntry, due

DAY = CalendarEntry(minute=8 * 60, devices=12)
NIGHT = CalendarEntry(minute=22 * 60, devices=4)
BERLIN = ZoneInfo("Europe/Berlin")
HOUR_S = 3600.0


def at(text: str, *, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


@pytest.mark.parametrize(
    ("time", "devices"),
    [("00:00", 4), ("07:59", 4), ("08:00", 12), ("21:59", 12), ("22:00", 4), ("23:59", 4)],
)
def test_an_entry_holds_until_the_next_and_over_midnight(time: str, devices: int):
    assert due((DAY, NIGHT), zone=UTC, now=at(f"2026-11-30 {time}")).devices == devices


def test_what_holds_says_since_when_until_when_and_why():
    found = due((DAY, NIGHT), zone=UTC, now=at("2026-11-30 03:00"))
    assert (found.since_t, found.until_t) == (at("2026-11-29 22:00"), at("2026-11-30 08:00"))
    assert found.reason == "the calendar gives 4 devices from 22:00 to 08:00 (UTC)"


def test_it_goes_by_the_clocks_of_its_zone():
    now = at("2026-11-30 07:30")  # half past eight in Berlin
    assert due((DAY, NIGHT), zone=BERLIN, now=now).devices == 12
    assert due((DAY, NIGHT), zone=ZoneInfo("UTC"), now=now).devices == 4


def test_a_single_entry_holds_always():
    assert {due((DAY,), zone=UTC, now=at(f"2026-11-30 {hour:02d}:00")).devices for hour in range(24)} == {12}


def test_a_time_that_the_clock_skips_comes_as_much_later_as_was_skipped():
    early = CalendarEntry(minute=2 * 60 + 30, devices=1)  # 2026-03-29: 02:00 becomes 03:00
    assert due((early, DAY), zone=BERLIN, now=at("2026-03-29 03:29", zone=BERLIN)).devices == 12
    assert due((early, DAY), zone=BERLIN, now=at("2026-03-29 03:30", zone=BERLIN)).devices == 1


def test_a_time_that_the_clock_shows_twice_comes_once():
    early = CalendarEntry(minute=2 * 60 + 30, devices=1)  # 2026-10-25: 03:00 becomes 02:00
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN).timestamp()
    assert due((early, DAY), zone=BERLIN, now=first - 1).devices == 12
    held = {due((early, DAY), zone=BERLIN, now=first + minutes * 60).devices for minutes in range(0, 5 * 60, 5)}
    assert held == {1}, "also while the clock shows two o'clock for the second time"


ENTRIES = st.lists(st.integers(0, 24 * 60 - 1), min_size=1, max_size=5, unique=True).map(
    lambda minutes: tuple(CalendarEntry(minute=minute, devices=minute + 1) for minute in sorted(minutes))
)


@given(entries=ENTRIES, now=st.floats(at("2026-01-01 00:00"), at("2027-01-01 00:00")))
def test_what_holds_holds_from_its_beginning_to_its_end(entries: tuple[CalendarEntry, ...], now: float):
    found = due(entries, zone=BERLIN, now=now)
    assert found.since_t <= now < found.until_t
    assert due(entries, zone=BERLIN, now=found.since_t).devices == found.devices
    assert due(entries, zone=BERLIN, now=found.until_t).since_t == found.until_t
    assert found.until_t - found.since_t <= timedelta(days=1, hours=1).total_seconds()


@pytest.mark.parametrize(
    ("zone", "skipped"),
    [("Pacific/Apia", "2011-12-30"), ("Pacific/Kwajalein", "1993-08-21"), ("Pacific/Kiritimati", "1994-12-31")],
)
def test_a_day_that_a_zone_skips_leaves_no_moment_without_an_entry(zone: str, skipped: str):
    for hours in range(-36, 48):
        now = at(skipped) + HOUR_S * hours
        found = due((DAY, NIGHT), zone=ZoneInfo(zone), now=now)
        assert found.since_t <= now < found.until_t
