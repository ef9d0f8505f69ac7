"""Due times from instants, local times, text and delays."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from delaystore.bulk.conversion import ConvertedBatch
from delaystore.bulk.fields import microseconds
from delaystore.bulk.options import AmbiguousTime, UnknownColumns
from delaystore.bulk.values import EPOCH, LATEST, MICROSECOND, OUT_OF_RANGE, SKIPPED, TWICE
from delaystore.errors import InvalidMessageError
from delaystore.message import LATEST_DUE_TIME, due_after, utc
from tests.unit.converting import BEGAN, DUE, convert, instants, local, not_utf8, reasons, rows

ZONES = ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Monrovia", "Pacific/Apia", "UTC"]
CHANGES = [
    ("2026-03-29", "2026-03-30"),
    ("2026-10-25", "2026-10-26"),
    ("2026-04-05", "2026-04-06"),
    ("2011-12-29", "2012-01-01"),
]
LOCAL = st.one_of(st.datetimes(), *(st.datetimes(local(first), local(last)) for first, last in CHANGES))
BERLIN = "Europe/Berlin"
GAP = local("2026-03-29T02:30")
FOLD = local("2026-10-25T02:30")


def due_times(converted: ConvertedBatch) -> list[datetime]:
    found: list[datetime] = converted.staged.column("due_time").to_pylist()
    return found


def due(kind: DataType, values: Any, **options: Any) -> ConvertedBatch:
    return convert(rows(len(values), due_time=(kind, values)), **options)


def delayed(kind: DataType, values: Any) -> ConvertedBatch:
    del (columns := rows(len(values)))["due_time"]
    return convert(columns | {"delay": (kind, values)})


def meant(time: datetime, zone: str) -> list[datetime]:
    """The instants at which the clocks show `time`, in order."""
    found = set()
    for fold in (0, 1):
        offset = time.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset()
        assert offset is not None
        instant = microseconds(time.replace(tzinfo=UTC)) - offset // MICROSECOND
        try:
            shown = (EPOCH + instant * MICROSECOND).astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        except OverflowError:
            continue
        if shown == time:
            found.add(instant)
    return [EPOCH + instant * MICROSECOND for instant in sorted(found) if instant <= LATEST]


@given(st.lists(LOCAL, min_size=1, max_size=20), st.sampled_from(ZONES), st.sampled_from(AmbiguousTime))
@example([local("2026-04-05T01:45"), local("2026-04-05T01:15")], "Australia/Lord_Howe", AmbiguousTime.REJECT)
def test_a_local_time_is_the_instant_at_which_the_clocks_show_it(
    times: list[datetime], zone: str, ambiguous: AmbiguousTime
) -> None:
    expected = []
    for time in times:
        found = meant(time, zone)
        if len(found) == 1 or (found and ambiguous is not AmbiguousTime.REJECT):
            expected.append(found[-1 if ambiguous is AmbiguousTime.LATEST else 0])
    options = {"time_zone": zone, "ambiguous_time": ambiguous}
    assert due_times(due(TimestampNTZType(), times, **options)) == expected
    assert due_times(due(StringType(), [time.isoformat() for time in times], **options)) == expected


@pytest.mark.parametrize("kind", [TimestampNTZType(), StringType()], ids=str)
def test_a_time_that_clocks_skip_or_bring_twice_is_rejected(kind: DataType) -> None:
    times = [GAP, FOLD, local("2026-07-01"), None]
    values = times if isinstance(kind, TimestampNTZType) else [time and time.isoformat() for time in times]
    assert reasons(due(kind, values, time_zone=BERLIN)) == [SKIPPED, TWICE, "due_time is null"]
    assert reasons(due(kind, values, time_zone=BERLIN, ambiguous_time=AmbiguousTime.LATEST)) == [
        SKIPPED, "due_time is null",
    ]  # fmt: skip


def test_of_a_time_twice_the_first_or_second_can_be_meant() -> None:
    for ambiguous, hour in ((AmbiguousTime.EARLIEST, 0), (AmbiguousTime.LATEST, 1)):
        converted = due(TimestampNTZType(), [FOLD], time_zone=BERLIN, ambiguous_time=ambiguous)
        assert due_times(converted) == [datetime(2026, 10, 25, hour, 30, tzinfo=UTC)]


def test_local_times_that_no_datetime_holds_are_out_of_range() -> None:
    far = pa.array([-(2**63), 2**63 - 1, LATEST + 1], pa.int64()).view(pa.timestamp("us"))
    assert reasons(due(TimestampNTZType(), far, time_zone="UTC")) == [OUT_OF_RANGE] * 3


def test_what_no_store_keeps_is_out_of_range() -> None:
    values = instants([microseconds(datetime(1, 1, 1, 23, tzinfo=UTC)), microseconds(datetime(1, 1, 2, tzinfo=UTC))])
    assert reasons(due(TimestampType(), values)) == [OUT_OF_RANGE]
    west = [datetime(1, 1, 1, hour, tzinfo=UTC).replace(tzinfo=None) for hour in (22, 1)]
    assert reasons(due(TimestampNTZType(), west, time_zone="Etc/GMT+5")) == [OUT_OF_RANGE]


def test_instants_count_whatever_the_session_time_zone() -> None:
    values = [
        DUE,
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        LATEST_DUE_TIME,
    ]
    assert due_times(due(TimestampType(), instants([microseconds(value) for value in values]))) == values


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_written_times_with_offset_are_what_python_reads(time: datetime) -> None:
    written = re.sub(r"([+-]\d\d:\d\d):\d\d$", r"\1", time.isoformat())  # no form has an offset with seconds
    converted = due(StringType(), [written])
    try:
        expected = [utc(datetime.fromisoformat(written), "due_time")]
    except InvalidMessageError:
        expected = []
    assert due_times(converted) == expected
    assert reasons(converted) == [OUT_OF_RANGE] * (1 - len(expected))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-30T08:00:00", "due_time has no time zone (see the option timeZone)"),
        ("tomorrow", "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00"),
        ("", "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00"),
        ("203011301000Z", "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00"),
        ("1795101512345", "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00"),
        ("20301130", "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00"),
        (
            "2030-11-30510:00:00Z",
            "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00",
        ),
        (None, "due_time is null"),
    ],
)
def test_text_that_is_no_instant_is_rejected(text: str | None, reason: str) -> None:
    converted = due(StringType(), ["2026-11-30T08:00Z", text, "20261130T0800+0100"])
    assert reasons(converted) == [reason]
    assert [time.hour for time in due_times(converted)] == [8, 7]


def test_text_that_is_no_utf8_is_rejected() -> None:
    assert reasons(due(StringType(), not_utf8(b"2026-11-30T08:00Z", b"\xff"))) == ["due_time is not UTF-8"]


def expected_after(delay: float | timedelta) -> list[datetime]:
    try:
        return [utc(due_after(BEGAN, delay), "due_time")]
    except InvalidMessageError:
        return []


@given(st.floats() | st.floats(0, 1e6) | st.integers(0, 10**7).map(lambda n: n / 2e6 + 5e-7))
@example(-0.0)
@example(-1e-9)
@example(0.5e-6)
@example(1.5e-6)
@example((LATEST_DUE_TIME - BEGAN).total_seconds())
def test_a_real_delay_is_rounded_as_a_timedelta_is(seconds: float) -> None:
    assert due_times(delayed(DoubleType(), [seconds])) == expected_after(seconds)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 10**12))
def test_a_whole_delay_is_seconds(seconds: int) -> None:
    assert due_times(delayed(LongType(), [seconds])) == expected_after(seconds)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2**58))
def test_an_interval_is_a_delay(span: int) -> None:
    values = pa.array([span], pa.int64()).view(pa.duration("us"))
    assert due_times(delayed(DayTimeIntervalType(), values)) == expected_after(span * MICROSECOND)


@given(st.decimals(1 - 10**29, 10**29 - 1, places=9))
@example(Decimal("0.0000005"))
@example(Decimal("0.0000015"))
def test_a_decimal_delay_is_exact(seconds: Decimal) -> None:
    span = round(seconds * 10**6)
    try:
        expected = expected_after(span * MICROSECOND)
    except OverflowError:
        expected = []
    assert due_times(delayed(DecimalType(38, 9), [seconds])) == expected


@pytest.mark.parametrize("kind", [ByteType(), ShortType(), IntegerType(), FloatType()], ids=str)
def test_every_number_is_a_delay(kind: DataType) -> None:
    assert due_times(delayed(kind, [90])) == [BEGAN + timedelta(seconds=90)]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (DoubleType(), None, "delay is null"),
        (LongType(), None, "delay is null"),
        (DoubleType(), float("nan"), "delay is not a finite number of seconds, such as 90 or 0.5"),
        (DoubleType(), float("-inf"), "delay is not a finite number of seconds, such as 90 or 0.5"),
        (DoubleType(), -1.0, "delay is negative"),
        (LongType(), -1, "delay is negative"),
        (DecimalType(5, 2), Decimal("-0.01"), "delay is negative"),
        (DayTimeIntervalType(), timedelta(microseconds=-1), "delay is negative"),
        (DoubleType(), 1e300, OUT_OF_RANGE),
        (LongType(), 2**62, OUT_OF_RANGE),
    ],
)  # fmt: skip
def test_a_delay_that_says_no_time_is_rejected(kind: DataType, value: Any, reason: str) -> None:
    converted = delayed(kind, [5, value, 5] if value is None or not isinstance(value, timedelta) else [value])
    assert reasons(converted) == [reason]


@given(st.decimals(allow_nan=False, allow_infinity=False) | st.decimals(-1, 10**12, places=9))
@example(Decimal("1e-400"))
@example(Decimal("-1e-400"))
@example(Decimal("1e400"))
def test_a_written_delay_is_the_decimal_that_it_says(seconds: Decimal) -> None:
    limited = max(min(seconds, Decimal(10**13)), Decimal(-1))
    expected = expected_after(round(limited * 10**6) * MICROSECOND)
    assert due_times(delayed(StringType(), [str(seconds)])) == expected


@pytest.mark.parametrize("text", ["90", " 90 ", "+90.", "9E1", "900e-1", "90.0000004", "089.9999996"])
def test_a_delay_can_be_written_in_many_ways(text: str) -> None:
    assert due_times(delayed(StringType(), [text])) == [BEGAN + timedelta(seconds=90)]


@pytest.mark.parametrize(
    "text", ["10 minutes", "", "NaN", "Infinity", "-inf", "1_0", "1,5", "0x9", "٣", "1e", "PT1H", "."]
)
def test_text_that_is_no_delay_is_rejected_as_it_was_written(text: str) -> None:
    converted = delayed(StringType(), ["5", text, None])
    assert reasons(converted) == ["delay is not a finite number of seconds, such as 90 or 0.5", "delay is null"]
    assert converted.rejected is not None
    assert converted.rejected.column("delay").to_pylist() == [text, None]


@pytest.mark.parametrize(("text", "reason"), [("-1", "delay is negative"), ("1e300", OUT_OF_RANGE)])
def test_a_written_delay_has_its_limits(text: str, reason: str) -> None:
    assert reasons(delayed(StringType(), [text])) == [reason]


ROWS_OF_ZONES: list[tuple[str, str | None, str]] = [
    ("2026-07-01T08:00:00", "Europe/Berlin", "2026-07-01T06:00:00+00:00"),
    ("2026-07-01T08:00:00", "Asia/Kathmandu", "2026-07-01T02:15:00+00:00"),
    ("2026-03-29T02:30:00", "Europe/Berlin", SKIPPED),
    ("2026-03-29T02:30:00", "Asia/Kathmandu", "2026-03-28T20:45:00+00:00"),
    ("2026-10-25T02:30:00", "Europe/Berlin", TWICE),
    ("2026-07-01T08:00:00", "Mars/Olympus", "time zone is unknown; write it as in Europe/Berlin or UTC"),
    ("2026-07-01T08:00:00", "../etc/passwd", "time zone is unknown; write it as in Europe/Berlin or UTC"),
    ("2026-07-01T08:00:00", None, "due_time has no time zone (see the option timeZone)"),
    ("2026-07-01T08:00:01", "Europe/Berlin", "2026-07-01T06:00:01+00:00"),
]


@pytest.mark.parametrize("kind", [StringType(), TimestampNTZType()], ids=str)
@pytest.mark.parametrize("default", [None, "America/St_Johns"])
@pytest.mark.parametrize("ambiguous", AmbiguousTime)
def test_each_row_has_its_time_zone(kind: DataType, default: str | None, ambiguous: AmbiguousTime) -> None:
    times = [time if kind == StringType() else local(time) for time, _, _ in ROWS_OF_ZONES]
    columns = rows(len(times), due_time=(kind, times), tz=(StringType(), [zone for _, zone, _ in ROWS_OF_ZONES]))
    options: dict[str, Any] = {"zone_column": "TZ", "time_zone": default, "ambiguous_time": ambiguous}
    converted = convert(columns, **options)
    expected = [text for _, _, text in ROWS_OF_ZONES]
    if default is not None:
        expected[7] = "2026-07-01T10:30:00+00:00"
    if ambiguous is not AmbiguousTime.REJECT:
        expected[4] = (
            "2026-10-25T00:30:00+00:00" if ambiguous is AmbiguousTime.EARLIEST else "2026-10-25T01:30:00+00:00"
        )
    good = [text for text in expected if text.startswith("2026")]
    assert [each.isoformat() for each in due_times(converted)] == good
    assert reasons(converted) == [text for text in expected if text not in good]
    assert converted.staged.column("headers").null_count == len(good)


def test_a_written_offset_comes_before_the_row_s_time_zone() -> None:
    columns = rows(
        3,
        due_time=(StringType(), ["2026-07-01T08:00:00Z", None, "soon"]),
        tz=(StringType(), [None, BERLIN, BERLIN]),
    )
    converted = convert(columns, zone_column="tz", unknown_columns=UnknownColumns.HEADERS)
    assert [each.isoformat() for each in due_times(converted)] == ["2026-07-01T08:00:00+00:00"]
    assert [text.partition(" in a form")[0] for text in reasons(converted) if text] == [
        "due_time is null",
        "due_time is not a time",
    ]
    assert converted.staged.column("headers").to_pylist() == [None]


def test_no_rows_have_no_time_zones() -> None:
    assert due_times(convert(rows(0, due_time=(StringType(), []), tz=(StringType(), [])), zone_column="tz")) == []
