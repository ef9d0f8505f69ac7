"""When a recurring schedule is due: cron expressions, intervals, and intervals of days at a local time.

The computed times are called nominal times. They depend on the rule alone, not on the clock of this machine. When the
clocks change, a rule of one of two kinds applies, as in Debian's cron:

- **Fixed times**, such as `30 2 * * *` and `every="1d", at="02:30"`. A nominal time is the first moment at which the
  clocks have reached the local time. If the clocks skip the local time, this is the first moment after the gap; if they
  show it twice, the first of both. Nominal times that fall on one moment are one.
- **Elapsed time**: cron expressions whose minute or hour begins with `*`, such as `*/10 * * * *`. They are due whenever
  the clocks show a matching time. So they run in both passes of a repeated hour, and not in a gap.

cronsim parses expressions, and finds the next match on a calendar without a time zone. This module applies the zone,
because cronsim has no rule for fixed times with seconds.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError, InvalidScheduleError
from delaystore.message import span_of
from delaystore.text import clock_change, exact_duration_text, first_shown, parse_duration
from delaystore.text import zone as zone_of

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_LONGEST_INTERVAL: Final = timedelta(days=10_000)
_LONGEST_CRON: Final = 200
"""Characters of a cron expression."""
_CALENDAR_BEGIN: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - on a calendar without a time zone
_FIELDS: Final = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 or L",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT",
}
"""The fields as cronsim's errors name them, and their values."""
_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_AT: Final = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?", re.ASCII)
_KNOWN_YEARS: Final = range(2020, 2041)
"""Years that `zone_fingerprint` covers: the same in every year in which a program asks."""


class _Expression(NamedTuple):
    """A parsed cron expression: its iterator, to be copied, and facts about it."""

    iterator: CronSim
    by_elapsed_time: bool
    first: time
    """The earliest local time of day that can match."""
    last: time


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """When a schedule is due. Make one with `rule_of`.

    All results are in UTC, in whole seconds. Arguments are aware, in any time zone.

    Attributes:
        zone: The IANA name of the time zone.

    """

    zone: str = "UTC"

    def next_after(self, time: datetime) -> datetime | None:
        """The first nominal time after `time`; None: there is none before the year 10000."""
        try:
            return self._next(time.astimezone(UTC).replace(microsecond=0))
        except OverflowError:
            return None

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The nominal times after `after`, and up to and including `until`, in order."""
        until = until.astimezone(UTC)
        found = self.next_after(after)
        while found is not None and found <= until:
            yield found
            found = self.next_after(found)

    def count_between(self, after: datetime, until: datetime, at_most: int) -> int:
        """The number of nominal times after `after`, and up to and including `until`; it stops at `at_most`."""
        return sum(1 for _ in islice(self.between(after, until), at_most))

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The rule as JSON: the arguments of `rule_of` that differ from their defaults, without `starts`."""

    @abstractmethod
    def _next(self, instant: datetime) -> datetime | None:
        """As `next_after`, of a time in UTC and whole seconds. Raises OverflowError after the year 9999."""


@dataclass(frozen=True, kw_only=True)
class CronRule(Rule):
    """A cron expression, read by the clocks of a time zone.

    Attributes:
        cron: Five fields, six with seconds first, or a nickname such as `@daily`.
        both_days: Whether day-of-month and day-of-week must both match, if both are restricted. False: one is enough.

    """

    cron: str
    both_days: bool = False

    @override
    def __str__(self) -> str:
        return f"{self.cron} {self.zone}{' (both days)' if self.both_days else ''}"

    @override
    def as_dict(self) -> dict[str, Any]:
        return {"cron": self.cron, **_given(self.zone), **({"both_days": True} if self.both_days else {})}

    @override
    def _next(self, instant: datetime) -> datetime | None:
        expression = _parsed(self.cron, self.both_days)
        if expression.by_elapsed_time:
            return self._by_elapsed_time(instant, expression)
        found = _match_after(expression, _latest_shown(instant, self.zone))
        return None if found is None else first_shown(found.replace(tzinfo=_zone(self.zone)))

    def _by_elapsed_time(self, instant: datetime, expression: _Expression) -> datetime | None:
        where = _zone(self.zone)
        while True:  # once for each span of time in which the clocks do not change
            begin = instant + _SECOND
            local = begin.astimezone(where)
            offset = local.utcoffset()
            assert offset is not None
            found = _match_after(expression, local.replace(tzinfo=None, fold=0) - _SECOND)
            if found is None:
                return None
            due = (found - offset).replace(tzinfo=UTC)
            change = _first_change(self.zone, begin, due)
            if change is None:
                return due
            instant = change - _SECOND


@dataclass(frozen=True, kw_only=True)
class IntervalRule(Rule):
    """Every N seconds of elapsed time, beginning at an anchor.

    Attributes:
        every: The interval, in whole seconds.
        starts: The anchor, which is the first nominal time.

    """

    every: timedelta
    starts: datetime

    @override
    def __str__(self) -> str:
        return f"every {_interval_text(self.every)}"

    @override
    def as_dict(self) -> dict[str, Any]:
        return {"every": int(self.every.total_seconds())}

    @override
    def count_between(self, after: datetime, until: datetime, at_most: int) -> int:
        return max(0, min(at_most, self._number(until) - self._number(after)))

    @override
    def _next(self, instant: datetime) -> datetime:
        return self.starts + self.every * self._number(instant)

    def _number(self, until: datetime) -> int:
        """The number of nominal times up to and including `until`."""
        return max(0, (until.astimezone(UTC) - self.starts) // self.every + 1)


@dataclass(frozen=True, kw_only=True)
class DaysRule(Rule):
    """Every N days at a local time, counted from the local date of an anchor.

    Attributes:
        every: The interval, in whole days.
        at: The local time, to the second.
        starts: The anchor; no nominal time is before it.

    """

    every: timedelta
    at: time
    starts: datetime

    @override
    def __str__(self) -> str:
        return f"every {_interval_text(self.every)} at {_time_text(self.at)} {self.zone}"

    @override
    def as_dict(self) -> dict[str, Any]:
        return {"every": int(self.every.total_seconds()), "at": _time_text(self.at), **_given(self.zone)}

    @override
    def _next(self, instant: datetime) -> datetime:
        where = _zone(self.zone)
        first = datetime.combine(self.starts.astimezone(where).date(), self.at)
        shown = _latest_shown(max(instant, self.starts - _SECOND), self.zone)
        number = max(0, (shown - first) // self.every + 1)
        return first_shown((first + self.every * number).replace(tzinfo=where))


def rule_of(
    *,
    cron: str | None = None,
    every: timedelta | float | str | None = None,
    at: str | time | None = None,
    zone: str | ZoneInfo | None = None,
    starts: datetime | None = None,
    both_days: bool = False,
) -> Rule:
    """Make the rule of a schedule, from exactly one of `cron` and `every`.

    Args:
        cron: A cron expression of at most 200 characters: five fields, six with seconds first, or a nickname such as
            `@daily`.
        every: An interval of 1 s to 10,000 days: a timedelta, seconds, or a text such as `5m`.
        at: The local time of an interval of whole days: `09:00`, `09:00:30`, or a time without a time zone.
        zone: The time zone of `cron` or `at`, or its IANA name; None: UTC. An interval without `at` has none.
        starts: The anchor of an interval, which an interval needs, in UTC and whole seconds. A cron expression ignores
            it.
        both_days: As in Celery and APScheduler, both day-of-month and day-of-week of `cron` must match.

    Returns:
        The rule. `rule_of(**rule.as_dict(), starts=starts)` makes an equal one.

    Raises:
        InvalidScheduleError: An argument is missing, invalid, or of no use beside the others; or the expression never
            matches.

    """
    if (cron is None) == (every is None):
        raise InvalidScheduleError("a schedule has either cron or every; give exactly one of them")
    where = "UTC" if zone is None else zone.key if isinstance(zone, ZoneInfo) else zone
    _zone(where)
    if cron is not None:
        if at is not None:
            raise InvalidScheduleError("at is for intervals of days; leave it out, or give every in place of cron")
        cron = cron.replace("\t", " ") if isinstance(cron, str) else cron
        _check_cron(cron, both_days)
        return CronRule(cron=" ".join(cron.split()), zone=where, both_days=both_days)
    assert every is not None
    if both_days:
        raise InvalidScheduleError("both_days is for cron expressions; leave it out")
    assert starts is not None, "an interval needs an anchor"
    span = _interval(every)
    if at is not None:
        if span % _DAY:
            text = exact_duration_text(span)
            raise InvalidScheduleError(f"every is {text}, and at needs whole days; give days, or leave at out")
        return DaysRule(every=span, at=_local_time(at), zone=where, starts=starts)
    if where != "UTC":
        raise InvalidScheduleError("an interval goes by elapsed time; leave zone out, or add at for a local time")
    return IntervalRule(every=span, starts=starts)


@lru_cache(maxsize=1024)
def zone_fingerprint(zone: str) -> str:
    """A short text of the rules of a time zone as this machine has them, which changes with them.

    It covers the UTC offsets of 2020 to 2040, and does not depend on the format of the time zone database. A process
    computes it once, because Python also reads each zone once.

    Args:
        zone: The IANA name.

    Returns:
        12 hexadecimal digits.

    Raises:
        InvalidScheduleError: The zone is unknown.

    """
    where, begin = _zone(zone), datetime(_KNOWN_YEARS[0], 1, 1, tzinfo=UTC)
    changes = (change for year in _KNOWN_YEARS for change in _changes(zone, year))
    offsets = (f"{each.isoformat()} {each.astimezone(where).utcoffset()}" for each in (begin, *changes))
    return sha256("\n".join(offsets).encode()).hexdigest()[:12]


def duration_of(given: timedelta | float | str, name: str) -> timedelta:
    """A timedelta, seconds, or a text such as `5m`, as a timedelta; timedelta.max for longer ones.

    `name`: of the argument. Raises InvalidScheduleError.
    """
    try:
        return parse_duration(given, name) if isinstance(given, str) else span_of(given, name)
    except (ConfigurationError, InvalidMessageError) as error:
        raise InvalidScheduleError(str(error)) from None
    except OverflowError:
        return timedelta.max


def _check_cron(cron: str, both_days: bool) -> None:
    if not isinstance(cron, str):
        raise InvalidScheduleError(f"cron {cron!r} is no text; write an expression such as '0 9 * * 1-5'")
    if len(cron) > _LONGEST_CRON:
        raise InvalidScheduleError(
            f"cron {cron[:40]!r}... has {len(cron):,} characters; at most {_LONGEST_CRON} are allowed"
        )
    if not (cron.isascii() and cron.isprintable()):
        raise InvalidScheduleError(f"cron {cron!r} has a line break or a special character; write one line in ASCII")
    text = " ".join(cron.split())
    parts = _NICKNAMES.get(text.lower(), text).split()
    if text.startswith("@") and len(parts) == 1:
        raise InvalidScheduleError(f"cron {text!r} is unknown; use one of {', '.join(_NICKNAMES)}")
    if len(parts) not in (5, 6):
        raise InvalidScheduleError(
            f"cron {text!r} has {len(parts)} fields; write five (minute, hour, day-of-month, month, day-of-week), "
            "or six with the second first"
        )
    try:
        expression = _parsed(text, both_days)
    except CronSimError as error:
        raise _wrong_field(text, parts, str(error)) from None
    if _match_after(expression, _CALENDAR_BEGIN) is None:
        raise InvalidScheduleError(f"cron {text!r} never matches a date; correct the days and months")


def _wrong_field(text: str, parts: list[str], error: str) -> InvalidScheduleError:
    field = next(name for name in _FIELDS if error.endswith(name))
    given = parts[[*_FIELDS].index(field) - 6]
    if field == "day-of-month":
        try:
            CronSim(" ".join([*parts[:-2], "*", "*"]), _CALENDAR_BEGIN)
        except CronSimError:
            pass
        else:
            return InvalidScheduleError(
                f"cron {text!r} never matches a date, because no month of {parts[-2]!r} has the day-of-month "
                f"{given!r}; correct one of them"
            )
    return InvalidScheduleError(f"cron {text!r} has the wrong {field} {given!r}; write {_FIELDS[field]}")


def _interval(every: timedelta | float | str) -> timedelta:
    span = duration_of(every, "every")
    if not _SECOND <= span <= _LONGEST_INTERVAL or span % _SECOND:
        raise InvalidScheduleError(f"every {every!s} is out of range; give whole seconds, from 1s to 10000d")
    return span


def _local_time(at: str | time) -> time:
    if isinstance(at, time) and at.tzinfo is None and not at.microsecond:
        return at.replace(fold=0)
    if isinstance(at, str) and _AT.fullmatch(at):
        hours, minutes, seconds = map(int, f"{at}:00".split(":")[:3])
        return time(hours, minutes, seconds)
    raise InvalidScheduleError(f"at {str(at)[:40]!r} is no local time; write it as 09:00 or 09:00:30")


def _given(zone: str) -> dict[str, str]:
    return {} if zone == "UTC" else {"zone": zone}


def _time_text(at: time) -> str:
    return at.isoformat("seconds" if at.second else "minutes")


def _interval_text(every: timedelta) -> str:
    text = exact_duration_text(every)
    return text.removeprefix("1 ") if text.count(" ") == 1 else text


@lru_cache(maxsize=1024)
def _parsed(cron: str, both_days: bool) -> _Expression:
    """Parse an expression. Raises CronSimError."""
    iterator = CronSim(_NICKNAMES.get(cron.lower(), cron), _CALENDAR_BEGIN)
    iterator.day_and = iterator.day_and or both_days
    hours, minutes, seconds = iterator.hours, iterator.minutes, iterator.seconds
    first = time(min(hours), min(minutes), min(seconds))
    last = time(max(hours), max(minutes), max(seconds))
    is_star = any(field.startswith("*") for field in iterator.parts[1:3])
    return _Expression(iterator, is_star, first, last)


def _match_after(expression: _Expression, local: datetime) -> datetime | None:
    """The first match after a time without a time zone; None: there is none in 50 years, or before the year 10000."""
    iterator, now = copy(expression.iterator), local.time()
    try:
        if now >= expression.last:  # cronsim would go hour by hour
            local = datetime.combine(local.date() + _DAY, expression.first) - _SECOND
        elif now < expression.first:
            local = datetime.combine(local.date(), expression.first) - _SECOND
        iterator.dt = local
        return next(iterator, None)
    except OverflowError:
        return None


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return zone_of(name)
    except ConfigurationError as error:
        raise InvalidScheduleError(str(error)) from None


def _latest_shown(instant: datetime, zone: str) -> datetime:
    """The latest local time that the clocks have shown until `instant`. In a repeated hour that is its end."""
    where = _zone(zone)
    local = instant.astimezone(where)
    if local.fold:
        before, after = local.replace(fold=0).utcoffset(), local.utcoffset()
        assert before is not None
        assert after is not None
        local = (clock_change(where, instant - (before - after), instant) - _SECOND).astimezone(where)
    return local.replace(tzinfo=None, fold=0)


def _first_change(zone: str, after: datetime, until: datetime) -> datetime | None:
    """When the clocks change first after `after`, and at `until` at the latest; None: they do not."""
    for year in range(after.year, until.year + 1):
        for change in _changes(zone, year):
            if after < change <= until:
                return change
    return None


@lru_cache(maxsize=8192)
def _changes(zone: str, year: int) -> tuple[datetime, ...]:
    """When the clocks change in a year of UTC. From 1970 to 2037 no zone changes them twice within six days."""
    where, first = _zone(zone), date(year, 1, 1)
    midnights = (datetime.combine(first + n * _DAY, time(), UTC) for n in range(1, 365))
    last = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    samples = [datetime.combine(first, time(), UTC) - _SECOND, *midnights, last]
    offsets = [each.astimezone(where).utcoffset() for each in samples]
    pairs = zip(pairwise(samples), pairwise(offsets), strict=True)
    return tuple(clock_change(where, early, late) for (early, late), (before, after) in pairs if before != after)
