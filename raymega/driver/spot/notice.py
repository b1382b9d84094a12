"""What a cloud's answer says of this machine: it is to go, and when, or why there is no such thing in it. Pure.

    an answer --- a cloud's reader ---> Reading(notice | None, reason)

Clocks differ. A cloud names a time of its own clock; what counts here is how long that is from now. Its answer's Date
says what its clock shows; without one, a time that is over, or further off than the cloud ever names, is that of
another clock, and the usual warning is taken instead: too early costs little, too late a repair.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

SLACK_S = 5.0  # of a warning that is a little longer than usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server says. `headers`: by their names in lower case."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace").strip()

    @property
    def date_t(self) -> float | None:
        """What its clock shows, in Unix seconds."""
        return time_of(self.headers.get("date", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """This machine is to go.

    Args:
        by_t: when, in Unix seconds of this machine's clock.
        cause: in words, and the same for what is told again.
        is_hint: it may go sooner or later, and may stay; nothing is certain.
        ack: what the cloud is told once the machine may go; empty: nothing.
    """

    by_t: float
    cause: str
    is_hint: bool = False
    ack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One answer, read. `reason`: what it says, or what is wrong with it."""

    notice: Notice | None
    reason: str


def nothing(reason: str) -> Reading:
    """There is no notice in it."""
    return Reading(notice=None, reason=reason)


def told(notice: Notice) -> Reading:
    """There is one."""
    return Reading(notice=notice, reason=notice.cause)


def left_s(stated_t: float | None, *, answer: Answer, now: float, usual_s: float, most_s: float) -> float:
    """Seconds until a time that a cloud names.

    Args:
        stated_t: that time, by the cloud's clock; None: it names none.
        usual_s: the shortest warning that the cloud promises.
        most_s: the longest that it ever gives.
    """
    if stated_t is None:
        return usual_s
    date_t = answer.date_t
    left = stated_t - (now if date_t is None else date_t)
    return left if 0.0 <= left <= most_s + SLACK_S else usual_s


def time_of(word: str) -> float | None:
    """Unix seconds of `2026-11-29T16:22:00Z`, or of `Sat, 19 Sep 2026 18:29:47 GMT`; None for anything else.

    >>> time_of("2026-11-29T16:22:00Z") == time_of("Sun, 29 Nov 2026 16:22:00 GMT")
    True
    """
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(word)
            return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError):
            continue
    return None
