"""Rules of schedules: their nominal times, their texts, and refused arguments."""

import json
from datetime import UTC, datetime, time, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import delaystore.schedules.rules
from delaystore.errors import InvalidScheduleError
from delaystore.schedules.rules import Rule, rule_of, zone_fingerprint

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""A Thursday."""


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[misc,arg-type]


def local(rule: Rule, after: str, number: int) -> list[str]:
    """The next times in the rule's zone, after a time in that zone."""
    zone, instant = ZoneInfo(rule.zone), datetime.fromisoformat(after)
    found = islice(rule.between(instant.replace(tzinfo=zone), utc(9000, 1, 1)), number)
    return [f"{each.astimezone(zone):%Y-%m-%d %H:%M}" for each in found]


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("*/5 * * * *", "2026-01-01 00:00", "2026-01-01 00:05"),
        ("0 9 * * 1-5", "2026-01-02 09:00", "2026-01-05 09:00"),
        ("0 9 * * MON-FRI", "2026-01-02 09:00", "2026-01-05 09:00"),
        ("0 9 * jan,JUL sun", "2026-01-25 09:00", "2026-07-05 09:00"),
        ("0 0 * * 7", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"),
        ("0 0 29 2 *", "2096-02-29 00:00", "2104-02-29 00:00"),
        ("0 0 L * *", "2026-02-01 00:00", "2026-02-28 00:00"),
        ("0 0 LW * *", "2026-02-01 00:00", "2026-02-27 00:00"),
        ("0 0 * * MON#1", "2026-01-05 00:00", "2026-02-02 00:00"),
        ("0 0 * * 5L", "2026-01-01 00:00", "2026-01-30 00:00"),
        ("0 9\t*\t* *", "2026-01-01 00:00", "2026-01-01 09:00"),
        ("10-40/15 8 * * *", "2026-01-01 08:10", "2026-01-01 08:25"),
        ("0 12 13 * 5", "2026-01-09 12:00", "2026-01-13 12:00"),  # the 13th or a Friday
        ("@hourly", "2026-01-01 00:30", "2026-01-01 01:00"),
        ("@daily", "2026-01-01 00:00", "2026-01-02 00:00"),
        ("@midnight", "2026-01-01 00:00", "2026-01-02 00:00"),
        ("@weekly", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("@monthly", "2026-01-01 00:00", "2026-02-01 00:00"),
        ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("@Annually", "2026-01-01 00:00", "2027-01-01 00:00"),
    ],
)
def test_cron_expressions(cron: str, after: str, expected: str) -> None:
    assert local(rule_of(cron=cron), after, 1) == [expected]


CELERY = {
    "0 9 1-7 * 1": ["2026-01-05", "2026-02-02", "2026-03-02"],  # the first Monday of a month
    "0 9 8-14 * thu": ["2026-01-08", "2026-02-12", "2026-03-12"],  # the second Thursday
    "0 9 13 * FRI": ["2026-02-13", "2026-03-13", "2026-11-13"],
    "0 9 18 * mon": ["2026-05-18", "2027-01-18", "2027-10-18"],
    "0 9 29 1-10 fri": ["2026-05-29", "2027-01-29", "2027-10-29"],
    "0 9 29 2-10 fri,sat": ["2026-05-29", "2026-08-29", "2027-05-29"],
    "0 9 8-14 3 thu": ["2026-03-12", "2027-03-11", "2028-03-09"],
    "0 9 1 * 0": ["2026-02-01", "2026-03-01", "2026-11-01"],  # 0 is Sunday
    "0 9 */15 * 0": ["2026-02-01", "2026-03-01", "2026-05-31"],  # 1, 16 and 31
    "0 9 1-9/4 * */2": ["2026-01-01", "2026-02-01", "2026-02-05"],  # 1, 5, 9; Sunday, Tuesday, Thursday, Saturday
    "0 9 2,4,6 */2 tue,sun,fri": ["2026-01-02", "2026-01-04", "2026-01-06"],
    "0 9 26,27,28 2 *": ["2026-02-26", "2026-02-27", "2026-02-28"],
    "0 9 29 2 *": ["2028-02-29", "2032-02-29", "2036-02-29"],
    "0 9 * * mon-fri": ["2026-01-01", "2026-01-02", "2026-01-05"],
    "0 9 1-7 * 1#1": ["2026-01-05", "2026-02-02", "2026-03-02"],
    "0 9 29 2 1": ["2044-02-29", "2072-02-29", "2112-02-29"],
}
"""What Celery's crontab means, in which both days must match; its tests have these forms."""


@pytest.mark.parametrize("cron", CELERY)
def test_both_days_must_match_as_in_celery(cron: str) -> None:
    rule = rule_of(cron=cron, both_days=True)
    assert local(rule, "2026-01-01 00:00", 3) == [f"{day} 09:00" for day in CELERY[cron]]


def test_without_both_days_one_of_them_is_enough() -> None:
    assert local(rule_of(cron="0 9 1-7 * 1"), "2026-01-06 10:00", 3) == [
        "2026-01-07 09:00",
        "2026-01-12 09:00",
        "2026-01-19 09:00",
    ]


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York"])
def test_nine_o_clock_stays_nine_o_clock(zone: str) -> None:
    for rule in (
        rule_of(cron="0 9 * * *", zone=zone),
        rule_of(every="1d", at="09:00", zone=zone, starts=utc(2017, 1, 1)),
    ):
        for day in ("2017-03-11", "2017-03-25", "2017-10-28", "2017-11-04"):
            found = local(rule, f"{day} 09:00", 2)
            assert [each[11:] for each in found] == ["09:00"] * 2
            assert found[0][:10] == f"{datetime.fromisoformat(day) + timedelta(days=1):%Y-%m-%d}"


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        # the clocks skip 2:00 to 3:00
        ("30 2 * * *", [utc(2026, 3, 28, 1, 30), utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]),
        ("0 2,3 29 3 *", [utc(2026, 3, 29, 1), utc(2027, 3, 29, 0), utc(2027, 3, 29, 1)]),
        ("*/30 2 29 3 *", [utc(2027, 3, 29, 0), utc(2027, 3, 29, 0, 30), utc(2028, 3, 29, 0)]),
        # the clocks show 2:00 to 3:00 twice
        ("30 2 25,26 10 *", [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30), utc(2027, 10, 25, 0, 30)]),
        ("30 2-3 25 10 *", [utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 2, 30), utc(2027, 10, 25, 0, 30)]),
        ("30 * 25 10 *", [utc(2026, 10, 24, 22, 30), utc(2026, 10, 24, 23, 30), utc(2026, 10, 25, 0, 30)]),
        ("*/30 2 25 10 *", [utc(2026, 10, 25, 0), utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 1)]),
    ],
)
def test_changes_of_the_clocks(cron: str, expected: list[datetime]) -> None:
    rule = rule_of(cron=cron, zone="Europe/Berlin")
    assert list(islice(rule.between(utc(2026, 3, 28), utc(2040, 1, 1)), 3)) == expected


def test_a_skipped_day_runs_at_the_moment_after_it() -> None:
    rule = rule_of(cron="0 9 * * *", zone="Pacific/Apia")
    assert local(rule, "2011-12-29 08:00", 3) == ["2011-12-29 09:00", "2011-12-31 00:00", "2011-12-31 09:00"]


def test_the_second_pass_of_a_repeated_hour_is_after_its_first() -> None:
    rule = rule_of(cron="10,50 2 * * *", zone="Europe/Berlin")
    second_pass = utc(2026, 10, 25, 1, 20)
    assert rule.next_after(second_pass) == utc(2026, 10, 26, 1, 10)
    assert rule_of(cron="*/10 2 * * *", zone="Europe/Berlin").next_after(second_pass) == utc(2026, 10, 25, 1, 30)


def test_intervals_go_by_elapsed_time_from_their_anchor() -> None:
    rule = rule_of(every="7m", starts=utc(2026, 1, 1, 0, 0, 30))
    assert rule.next_after(utc(2020, 1, 1)) == utc(2026, 1, 1, 0, 0, 30)
    assert rule.next_after(utc(2026, 1, 1, 0, 0, 30)) == utc(2026, 1, 1, 0, 7, 30)
    assert rule.next_after(utc(2026, 1, 1, 0, 7, 29)) == utc(2026, 1, 1, 0, 7, 30)
    assert rule.next_after(datetime.fromisoformat("2026-01-01T00:07:29.999999+00:00")) == utc(2026, 1, 1, 0, 7, 30)


def test_days_are_counted_from_the_local_date_of_the_anchor() -> None:
    starts = utc(2026, 3, 27, 23, 30)  # the 28th in Berlin, 00:30
    rule = rule_of(every="2d", at="09:00", zone="Europe/Berlin", starts=starts)
    assert local(rule, "2026-01-01 00:00", 3) == ["2026-03-28 09:00", "2026-03-30 09:00", "2026-04-01 09:00"]
    early = rule_of(every=timedelta(days=2), at=time(0, 15), zone="Europe/Berlin", starts=starts)
    assert local(early, "2026-01-01 00:00", 2) == ["2026-03-30 00:15", "2026-04-01 00:15"]
    assert rule_of(every="1w", at="00:30", zone="Europe/Berlin", starts=starts).next_after(utc(2026, 1, 1)) == starts


def test_a_year_of_seconds_is_quick() -> None:
    after, until = utc(2026, 1, 1), utc(2027, 1, 1)
    each = rule_of(every=1, starts=utc(2020, 1, 1))
    assert each.count_between(after, until, 10**9) == 365 * 86400
    assert each.count_between(after, until, 1000) == 1000
    minutes = rule_of(cron="* * * * *", zone="Europe/Berlin")
    assert minutes.count_between(after, until, 7) == 7


def test_there_is_an_end() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for rule in (
        rule_of(cron="* * * * *", zone="America/New_York"),
        rule_of(cron="0 0 * * *", zone="Asia/Tokyo"),
        rule_of(cron="0 0 29 2 *"),
        rule_of(every=60, starts=BEGIN),
        rule_of(every="1d", at="09:00", zone="Europe/Berlin", starts=BEGIN),
    ):
        assert rule.next_after(last) is None
        assert not list(rule.between(last, last))


@pytest.mark.parametrize(
    ("arguments", "text", "stored"),
    [
        (
            {"cron": " 0 9  * * 1-5", "zone": "Europe/Berlin"},
            "0 9 * * 1-5 Europe/Berlin",
            {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"},
        ),
        ({"cron": "@daily"}, "@daily UTC", {"cron": "@daily"}),
        ({"cron": "@daily", "starts": BEGIN}, "@daily UTC", {"cron": "@daily"}),
        (
            {"cron": "0 9 1-7 * 1", "both_days": True},
            "0 9 1-7 * 1 UTC (both days)",
            {"cron": "0 9 1-7 * 1", "both_days": True},
        ),
        (
            {"every": "5m", "starts": BEGIN},
            "every 5 minutes",
            {"every": 300},
        ),
        (
            {"every": 3600, "zone": "UTC", "starts": BEGIN},
            "every hour",
            {"every": 3600},
        ),
        (
            {"every": timedelta(hours=25), "starts": BEGIN},
            "every 1 day 1 hour",
            {"every": 90000},
        ),
        (
            {"every": "2d", "at": "09:00", "zone": "Europe/Berlin", "starts": BEGIN},
            "every 2 days at 09:00 Europe/Berlin",
            {"every": 172800, "at": "09:00", "zone": "Europe/Berlin"},
        ),
        (
            {"every": "1d", "at": time(9, 0, 30), "starts": BEGIN},
            "every day at 09:00:30 UTC",
            {"every": 86400, "at": "09:00:30"},
        ),
    ],
)
def test_a_rule_is_text_and_json(arguments: dict[str, Any], text: str, stored: dict[str, Any]) -> None:
    rule = rule_of(**arguments)
    assert str(rule) == text
    assert rule.as_dict() == stored
    again = rule_of(**json.loads(json.dumps(stored)), starts=arguments.get("starts"))
    assert again == rule
    assert hash(again) == hash(rule)
    assert again != rule_of(cron="1 2 3 4 5")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "a schedule has either cron or every; give exactly one of them"),
        ({"cron": "* * * * *", "every": 5}, "a schedule has either cron or every; give exactly one of them"),
        ({"cron": "0 0 31 2 *"}, "because no month of '2' has the day-of-month '31'; correct one of them"),
        ({"cron": "0 0 30 2 *"}, "because no month of '2' has the day-of-month '30'; correct one of them"),
        ({"cron": "0 0 0 31 4,FEB *"}, "because no month of '4,FEB' has the day-of-month '31'"),
        ({"cron": "0 0 31 2 1", "both_days": True}, "never matches a date; correct the days and months"),
        ({"cron": "0 0 20 * 1L"}, None),  # the 20th, or the last Monday
        ({"cron": "0 0 20 * 1L", "both_days": True}, "never matches a date; correct the days and months"),
        ({"cron": "60 * * * *"}, "has the wrong minute '60'; write 0-59"),
        ({"cron": "* 24 * * *"}, "has the wrong hour '24'"),
        ({"cron": "* * 32 * *"}, "has the wrong day-of-month '32'"),
        ({"cron": "* * * x *"}, "has the wrong month 'x'"),
        ({"cron": "* * * * fri-mon"}, "has the wrong day-of-week 'fri-mon'"),
        ({"cron": "*/0 * * * * *"}, "has the wrong second '*/0'"),
        ({"cron": "1,,2 * * * *"}, "has the wrong minute '1,,2'"),
        ({"cron": "* * * *"}, "has 4 fields; write five"),
        ({"cron": "* * * * * * *"}, "has 7 fields; write five"),
        ({"cron": ""}, "cron '' has 0 fields; write five"),
        ({"cron": "@reboot"}, "cron '@reboot' is unknown; use one of @hourly, @daily"),
        ({"cron": "* * * * *\n"}, "has a line break or a special character; write one line in ASCII"),
        ({"cron": "0 0 * * *\N{LINE SEPARATOR}"}, "has a line break or a special character"),
        ({"cron": "1," * 100 + "1 * * * *"}, "has 209 characters; at most 200 are allowed"),
        ({"cron": 5}, "cron 5 is no text"),
        ({"cron": "* * * * *", "at": "09:00"}, "at is for intervals of days; leave it out"),
        ({"cron": "* * * * *", "zone": "Mars/Phobos"}, "the time zone 'Mars/Phobos' is unknown; write it as in"),
        ({"cron": "* * * * *", "zone": "Europe/\nBerlin"}, "the time zone 'Europe/\\nBerlin' is unknown"),
        ({"cron": "* * * * *", "zone": ""}, "the time zone '' is unknown"),
        ({"every": 0, "starts": BEGIN}, "every 0 is out of range; give whole seconds, from 1s to 10000d"),
        ({"every": 1.5, "starts": BEGIN}, "every 1.5 is out of range"),
        ({"every": "500ms", "starts": BEGIN}, "every 500ms is out of range"),
        ({"every": "10001d", "starts": BEGIN}, "every 10001d is out of range"),
        ({"every": float("inf"), "starts": BEGIN}, "every inf is out of range"),
        ({"every": True, "starts": BEGIN}, "every must be a timedelta or a number of seconds, not True"),
        ({"every": "2M", "starts": BEGIN}, "has a capital M; write m or min for minutes"),
        ({"every": "1d", "zone": "Europe/Berlin", "starts": BEGIN}, "goes by elapsed time; leave zone out, or add at"),
        ({"every": "5h", "at": "09:00", "starts": BEGIN}, "every is 5 hours, and at needs whole days; give days"),
        ({"every": "1d", "at": "9", "starts": BEGIN}, "at '9' is no local time; write it as 09:00 or 09:00:30"),
        ({"every": "1d", "at": "24:00", "starts": BEGIN}, "at '24:00' is no local time"),
        ({"every": "1d", "at": time(9, tzinfo=UTC), "starts": BEGIN}, "is no local time"),
        ({"every": "1d", "both_days": True, "starts": BEGIN}, "both_days is for cron expressions; leave it out"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(arguments: dict[str, Any], error: str | None) -> None:
    if error is None:
        assert rule_of(**arguments).next_after(BEGIN)
        return
    with pytest.raises(InvalidScheduleError) as raised:
        rule_of(**arguments)
    assert error in str(raised.value)
    assert str(raised.value).isprintable()


def test_a_fingerprint_is_of_the_rules_of_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(zone_fingerprint("Europe/Berlin")) == 12
    assert zone_fingerprint("Europe/Berlin") == zone_fingerprint("Arctic/Longyearbyen")  # another name for the same
    names = ["UTC", "Europe/Berlin", "Europe/London", "Africa/Casablanca", "Asia/Kathmandu", "Australia/Lord_Howe"]
    assert len({zone_fingerprint(name) for name in names}) == len(names)
    with pytest.raises(InvalidScheduleError, match="the time zone 'Nowhere' is unknown"):
        zone_fingerprint("Nowhere")
    with monkeypatch.context() as changed:  # as if an update moved the clocks of Berlin to those of London
        changed.setattr(delaystore.schedules.rules, "_zone", lambda name: ZoneInfo("Europe/London"))
        changed.setattr(delaystore.schedules.rules, "_changes", delaystore.schedules.rules._changes.__wrapped__)
        assert zone_fingerprint.__wrapped__("Europe/Berlin") == zone_fingerprint("Europe/London")


FIELDS = {
    "minute": st.sampled_from(["*", "0", "30", "*/7", "15-45/10", "1,59"]),
    "hour": st.sampled_from(["*", "0", "2", "1-3", "*/5", "2,23"]),
    "day": st.sampled_from(["*", "1", "31", "*/10", "L"]),
    "month": st.sampled_from(["*", "3", "10", "1-6"]),
    "weekday": st.sampled_from(["*", "0", "SUN", "1-5", "7L"]),
}
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca", "Pacific/Apia"]
)
TIMES = st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
SECONDS = st.sampled_from(["", "0 ", "* ", "*/20 "])


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    zone, starts = draw(ZONES), draw(TIMES).replace(microsecond=0)
    kind = draw(st.sampled_from(["cron", "every", "days"]))
    if kind == "every":
        return rule_of(every=draw(st.integers(1, 10**6)), starts=starts)
    if kind == "days":
        every, at = draw(st.integers(1, 40)) * 86400, draw(st.times()).replace(microsecond=0)
        return rule_of(every=every, at=at, zone=zone, starts=starts)
    fields = " ".join(draw(field) for field in FIELDS.values())
    try:
        return rule_of(cron=draw(SECONDS) + fields, zone=zone, both_days=draw(st.booleans()))
    except InvalidScheduleError:
        assume(False)
        raise


CHANGES = st.sampled_from(
    [utc(2026, 3, 29, 1), utc(2026, 10, 25, 1), utc(2026, 4, 4, 15), utc(2011, 12, 30, 10), utc(2026, 11, 1, 6, 30)]
)
NEAR = st.builds(lambda change, seconds: change + timedelta(seconds=seconds), CHANGES, st.integers(-90000, 90000))


@given(rules(), TIMES | NEAR, st.timedeltas(timedelta(0), timedelta(days=60)))
def test_the_ways_to_ask_agree(rule: Rule, after: datetime, span: timedelta) -> None:
    until = after + span
    found = list(islice(rule.between(after, until), 300))
    stepped, instant = [], rule.next_after(after)
    while instant is not None and instant <= until and len(stepped) < 300:
        assert instant > (stepped[-1] if stepped else after)
        assert instant.utcoffset() == timedelta(0)
        assert not instant.microsecond
        stepped.append(instant)
        instant = rule.next_after(instant)
    assert found == stepped
    assert rule.count_between(after, until, 300) == len(found)
    assert rule.count_between(until, after, 300) == 0 if span else True
