"""The hours at which a recipient may be reached, as spans of instants in the recipient's time zone."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Self

from delaystore.errors import ConfigurationError
from delaystore.text import first_shown

_DAY_NAMES: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ALL_DAYS: Final = frozenset(range(len(_DAY_NAMES)))
_WRITTEN: Final = re.compile(r"(?:(?P<days>[a-z,\s-]+)\s)?\s*(?P<opens>\d\d?:\d\d)\s*-\s*(?P<closes>\d\d?:\d\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_MICROSECOND: Final = timedelta(microseconds=1)
DAY: Final = _DAY // _MICROSECOND
_SHOWN: Final = 40
"""Characters of a wrong value that an error shows."""


@dataclass(frozen=True, slots=True)
class SendWindow:
    """Hours of some days of the week, by the clocks of a time zone.

    Clock changes follow the rules of Debian's cron: an hour that the clocks skip is the first moment after the gap, and
    an hour that they repeat is the first of the two.

    Attributes:
        opens: Time of the day from midnight, inclusive.
        closes: Time of the day from midnight, exclusive; on the next day, unless it is later than `opens`.
        days: Days on which the window opens; 0 is Monday.

    """

    opens: timedelta
    closes: timedelta
    days: frozenset[int] = _ALL_DAYS

    @classmethod
    def parse(cls, text: str, option: str) -> Self:
        """Parse `08:00-20:00`, `22:00-06:00`, `mon-fri 08:00-20:00` or `sat,sun 10:00-18:00`.

        Args:
            text: The window.
            option: What errors call it.

        Raises:
            ConfigurationError: It is no window, or one of no length.

        """
        found = _WRITTEN.fullmatch(text.strip().lower())
        opens, closes = (None, None) if found is None else (_time(found["opens"]), _time(found["closes"]))
        days = None if found is None else _days(found["days"])
        if opens is None or closes is None or days is None or opens == _DAY:
            raise ConfigurationError(
                f"{option} {text[:_SHOWN]!r} is no window; write 08:00-20:00, 22:00-06:00 or mon-fri 08:00-20:00"
            )
        if opens == closes:
            raise ConfigurationError(
                f"{option} {text[:_SHOWN]!r} opens and closes at the same time; leave it out to send at any time"
            )
        return cls(opens, closes, days)

    def spans(self, zone: tzinfo, day: int) -> tuple[tuple[int, int], ...]:
        """When the window is open around a day of UTC, in microseconds after 1970.

        Args:
            zone: The recipient's time zone.
            day: Days after 1970.

        Returns:
            The opening (inclusive) and closing (exclusive), in order: from the first span that closes after the day has
            begun, to the first that closes at its end or later. A window that clocks skip entirely does not open.
            Fewer where the calendar ends.

        """
        spans: list[tuple[int, int]] = []
        local = _EPOCH.replace(tzinfo=None)
        try:
            local += (day - 2) * _DAY  # a zone is up to a day ahead, and the window opened the day before
            while not spans or spans[-1][1] < (day + 1) * DAY:
                if local.weekday() in self.days:
                    closes = self.closes if self.opens < self.closes else self.closes + _DAY
                    span = _instant(local + self.opens, zone), _instant(local + closes, zone)
                    if span[1] > max(span[0], day * DAY):
                        spans.append(span)
                local += _DAY
        except OverflowError:
            pass
        return tuple(spans)


def _time(text: str) -> timedelta | None:
    """The time of the day, 24:00 included; None: there is none such."""
    hours, minutes = map(int, text.split(":"))
    time = timedelta(hours=hours, minutes=minutes)
    return time if minutes < 60 and time <= _DAY else None


def _days(text: str | None) -> frozenset[int] | None:
    """The days of `mon-fri` or `sat,sun`; None: a name is none of a day."""
    if text is None:
        return _ALL_DAYS
    days: set[int] = set()
    for part in text.split(","):
        names = [name.strip() for name in part.split("-")]
        if len(names) > 2 or not all(name in _DAY_NAMES for name in names):
            return None
        first, last = _DAY_NAMES.index(names[0]), _DAY_NAMES.index(names[-1])
        days.update((first + number) % 7 for number in range((last - first) % 7 + 1))
    return frozenset(days)


def _instant(local: datetime, zone: tzinfo) -> int:
    return (first_shown(local.replace(tzinfo=zone)) - _EPOCH) // _MICROSECOND
