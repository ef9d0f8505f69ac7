"""When schedules are due around every change of the clocks of fifty years, against an oracle without cronsim.

The oracle goes through time minute by minute. It knows only which local time the clocks of `zoneinfo` show, and the
rules as the documents state them:

- A schedule by elapsed time is due whenever the clocks show a matching time.
- A fixed time is due when the clocks show it for the first time. If they skip it, it is due at the first moment after
  the gap.

Each expression stands beside a predicate in Python, so the oracle reads no cron expression either.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from delaystore.schedules.rules import Rule, rule_of
from tests.long import long

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
ZONES = {
    "Europe/Berlin": range(1990, 2041),
    "Australia/Lord_Howe": range(1990, 2041),  # half an hour
    "America/Sao_Paulo": range(1990, 2041),  # gaps at midnight, until 2018
    "Africa/Casablanca": range(1990, 2041),  # in Ramadan the clocks go back
    "Europe/Dublin": range(1990, 2041),  # winter is the saved time
    "Pacific/Apia": range(1990, 2041),  # skips 2011-12-30
    "America/St_Johns": range(1990, 2041),  # changed at 00:01 until 2011
    "Africa/Cairo": range(1990, 2041),  # gaps at midnight, four changes in 2010 and 2014
    "Asia/Beirut": range(1990, 2041),
    "Asia/Kathmandu": range(1990, 2041),  # 5:45, and no change
}
BRIEF = {
    "Europe/Berlin": range(2025, 2027),
    "Australia/Lord_Howe": range(2025, 2026),
    "America/Sao_Paulo": range(2017, 2018),
    "Africa/Casablanca": range(2026, 2027),
    "Pacific/Apia": range(2011, 2012),
    "America/St_Johns": range(2011, 2012),
}


class Case(NamedTuple):
    """A rule, and its meaning for the oracle."""

    arguments: dict[str, Any]
    fixed: bool
    matches: Callable[[datetime], bool]

    def rule(self, zone: str) -> Rule:
        return rule_of(zone=zone, **self.arguments)


def cron(expression: str, matches: Callable[[datetime], bool], *, fixed: bool, **more: Any) -> Case:
    return Case({"cron": expression, **more}, fixed, matches)


ANCHOR = datetime(1989, 12, 24, 12, tzinfo=UTC)  # Christmas Eve in each of these zones
CASES = (
    cron("30 2 * * *", lambda t: (t.hour, t.minute) == (2, 30), fixed=True),
    cron("0 2,3 * * *", lambda t: t.hour in (2, 3) and t.minute == 0, fixed=True),
    cron("0,15,30,45 0-3 * * *", lambda t: t.hour <= 3 and t.minute % 15 == 0, fixed=True),
    cron("15 0 * * SUN", lambda t: (t.hour, t.minute) == (0, 15) and t.isoweekday() == 7, fixed=True),
    cron("0 0 30 * *", lambda t: (t.hour, t.minute, t.day) == (0, 0, 30), fixed=True),
    cron("59 23 1 * 5", lambda t: (t.hour, t.minute) == (23, 59) and (t.day == 1 or t.isoweekday() == 5), fixed=True),
    cron(
        "1 0 1-7 * 0",
        lambda t: (t.hour, t.minute) == (0, 1) and t.day <= 7 and t.isoweekday() == 7,
        fixed=True,
        both_days=True,
    ),
    cron("0 30 1 * * *", lambda t: (t.hour, t.minute) == (1, 30), fixed=True),
    cron("*/20 * * * *", lambda t: t.minute % 20 == 0, fixed=False),
    cron("30 * * * *", lambda t: t.minute == 30, fixed=False),
    cron("*/10 2 * * *", lambda t: t.hour == 2 and t.minute % 10 == 0, fixed=False),
    cron("5 */2 * * MON", lambda t: t.minute == 5 and t.hour % 2 == 0 and t.isoweekday() == 1, fixed=False),
    cron("0 * 1-2 * * *", lambda t: t.hour in (1, 2), fixed=False),
    Case({"every": "1d", "at": "02:30", "starts": ANCHOR}, True, lambda t: (t.hour, t.minute) == (2, 30)),
    Case(
        {"every": "2d", "at": "00:00", "starts": ANCHOR},
        True,
        lambda t: (t.hour, t.minute) == (0, 0) and (t.date() - ANCHOR.date()).days % 2 == 0,
    ),
)


def shown(zone: ZoneInfo, instant: datetime) -> datetime:
    """The local time that the clocks show, without a time zone."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def due(cases: Sequence[Case], zone: ZoneInfo, begin: datetime, end: datetime) -> list[list[datetime]]:
    """For each case, the minutes from `begin` to `end` in which it is due. The clocks do not change near `begin`."""
    found: list[list[datetime]] = [[] for _ in cases]
    already: set[datetime] = set()
    before = shown(zone, begin - MINUTE)
    instant = begin
    while instant <= end:
        now = shown(zone, instant)
        first_time = now not in already
        already.add(now)
        skipped = [before + n * MINUTE for n in range(1, (now - before) // MINUTE)] if now - before > MINUTE else ()
        for case, minutes in zip(cases, found, strict=True):
            if case.fixed:
                if (first_time and case.matches(now)) or any(map(case.matches, skipped)):
                    minutes.append(instant)
            elif case.matches(now):
                minutes.append(instant)
        before, instant = now, instant + MINUTE
    return found


def windows(zone: ZoneInfo, years: range, ordinary: int) -> Iterator[tuple[datetime, datetime]]:
    """Days around each change of the clocks, by looking at each hour, and some other days."""
    instant, end = datetime(years[0], 1, 1, tzinfo=UTC), datetime(years[-1], 12, 31, tzinfo=UTC)
    days = (end - instant).days
    yield from (
        (day, day + DAY) for day in (instant + n * DAY for n in sorted(Random(7).choices(range(days), k=ordinary)))
    )
    offset = instant.astimezone(zone).utcoffset()
    while instant < end:
        instant += timedelta(hours=1)
        if (now := instant.astimezone(zone).utcoffset()) != offset:
            offset = now
            yield instant.replace(hour=0) - DAY / 4, instant.replace(hour=0) + DAY * 3 / 2


RUNS = [
    *((zone, years, 3) for zone, years in BRIEF.items()),
    *(long(zone, years, 100) for zone, years in ZONES.items()),
]


@pytest.mark.parametrize(("name", "years", "ordinary"), RUNS)
def test_rules_are_due_when_the_clocks_say_so(name: str, years: range, ordinary: int) -> None:
    zone = ZoneInfo(name)
    rules = [case.rule(name) for case in CASES]
    looked_at = 0
    for begin, end in windows(zone, years, ordinary):
        for rule, expected in zip(rules, due(CASES, zone, begin, end), strict=True):
            assert list(rule.between(begin - MINUTE, end)) == expected, (str(rule), begin)
            middle = begin + (end - begin) / 2  # from any moment, also in a repeated hour
            for instant in (middle, *(each - timedelta(seconds=1) for each in expected[:3])):
                later = next((each for each in expected if each > instant), None)
                assert rule.next_after(instant) == (later or rule.next_after(end))
            looked_at += len(expected)
    assert looked_at > 500


@pytest.mark.parametrize("seed", [1, *(long(seed) for seed in range(2, 12))])
def test_the_next_time_from_any_moment_near_a_change(seed: int) -> None:
    """Also from seconds in the second pass of a repeated hour."""
    random = Random(seed)
    for name, years in BRIEF.items():
        zone = ZoneInfo(name)
        for begin, end in windows(zone, years, 0):
            for case, expected in zip(CASES, due(CASES, zone, begin, end), strict=True):
                rule = case.rule(name)
                for _ in range(20):
                    instant = begin + timedelta(seconds=random.randrange(42 * 3600))
                    if expected and instant < expected[-1]:
                        assert rule.next_after(instant) == min(each for each in expected if each > instant), instant


@pytest.mark.parametrize(
    ("expression", "fixed", "matches"),
    [
        ("*/10 30 2 * * *", True, lambda t: (t.hour, t.minute) == (2, 30) and t.second % 10 == 0),
        ("* 0 2,3 * * *", True, lambda t: t.hour in (2, 3) and t.minute == 0),
        ("59 59 1-2 * * *", True, lambda t: t.hour in (1, 2) and (t.minute, t.second) == (59, 59)),
        ("*/17 * * * * *", False, lambda t: t.second % 17 == 0),
        ("5 * 2 * * *", False, lambda t: t.hour == 2 and t.second == 5),
    ],
)
@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("Europe/Berlin", datetime(2026, 3, 28, 23, tzinfo=UTC)),
        ("Europe/Berlin", datetime(2026, 10, 24, 23, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 4, 4, 13, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 10, 3, 14, tzinfo=UTC)),
    ],
)
def test_expressions_with_seconds_follow_the_same_rules(
    expression: str, fixed: bool, matches: Callable[[datetime], bool], name: str, begin: datetime
) -> None:
    zone, second = ZoneInfo(name), timedelta(seconds=1)
    already: set[datetime] = set()
    expected, before = [], shown(zone, begin - second)
    for instant in (begin + n * second for n in range(5 * 3600)):
        now = shown(zone, instant)
        skipped = [before + n * second for n in range(1, (now - before) // second)] if now - before > second else ()
        if matches(now) if not fixed else (matches(now) and now not in already) or any(map(matches, skipped)):
            expected.append(instant)
        already.add(now)
        before = now
    rule = rule_of(cron=expression, zone=name)
    assert expected or not fixed  # by elapsed time, an hour in the gap has no time
    assert list(rule.between(begin - second, instant)) == expected
