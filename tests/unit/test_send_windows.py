"""Send windows: which instants are inside, and where the others are moved, across changes of the clocks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, TimestampType

from delaystore.bulk.conversion import ConvertedBatch
from delaystore.bulk.windows import SendWindow
from delaystore.errors import ConfigurationError
from delaystore.message import LATEST_DUE_TIME
from tests.unit.converting import convert, local, reasons, rows

ZONES = ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia", "UTC"]
BERLIN = ZoneInfo("Europe/Berlin")
TIMES = st.one_of(
    st.datetimes(local("1950-01-01"), local("2090-01-01"), timezones=st.just(UTC)),
    *(
        st.datetimes(middle - timedelta(days=2), middle + timedelta(days=2), timezones=st.just(UTC))
        for middle in map(local, ("2026-03-29", "2026-10-25", "2026-04-05", "2011-12-30"))
    ),
)
MINUTES = st.integers(0, 24 * 60 - 1).map(lambda number: timedelta(minutes=number))
WINDOWS = st.builds(
    SendWindow, MINUTES, MINUTES, st.frozensets(st.integers(0, 6), min_size=1)
).filter(lambda window: window.opens != window.closes)  # fmt: skip


def window(text: str) -> SendWindow:
    return SendWindow.parse(text, "--window")


def sent(times: list[datetime], zones: list[str | None], hours: SendWindow, **options: object) -> ConvertedBatch:
    columns = rows(len(times), due_time=(TimestampType(), times), tz=(StringType(), zones))
    return convert(columns, window=hours, zone_column="tz", **options)


def moved(times: list[datetime], zone: str, hours: SendWindow) -> list[datetime]:
    found = sent(times, [zone] * len(times), hours)
    assert found.rejected is None
    due: list[datetime] = found.staged.column("due_time").to_pylist()
    return due


def in_berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def is_open(time: datetime, zone: str, hours: SendWindow) -> bool:
    """By the hands of a clock, which show a repeated hour twice."""
    shown = time.astimezone(ZoneInfo(zone))
    of_day = timedelta(hours=shown.hour, minutes=shown.minute, seconds=shown.second, microseconds=shown.microsecond)
    today, yesterday = shown.weekday() in hours.days, (shown.weekday() - 1) % 7 in hours.days
    if hours.opens < hours.closes:
        return today and hours.opens <= of_day < hours.closes
    return (today and of_day >= hours.opens) or (yesterday and of_day < hours.closes)


def changes_near(time: datetime, zone: str) -> bool:
    around = (time + timedelta(days=day) for day in (-2, 2))
    return len({at.astimezone(ZoneInfo(zone)).utcoffset() for at in around}) > 1


@given(st.lists(TIMES, min_size=1, max_size=20), st.sampled_from(ZONES), WINDOWS)
def test_a_time_inside_stays_and_another_moves_to_an_opening(
    times: list[datetime], zone: str, hours: SendWindow
) -> None:
    found = moved(times, zone, hours)
    assert moved(found, zone, hours) == found
    for time, due in zip(times, found, strict=True):
        assert due >= time
        assert is_open(due, zone, hours), (time, due)
        if is_open(time, zone, hours) and not changes_near(time, zone):
            assert due == time
        if due > time and not changes_near(time, zone) and not changes_near(due, zone):
            shown = due.astimezone(ZoneInfo(zone))
            assert timedelta(hours=shown.hour, minutes=shown.minute) == hours.opens
            assert not is_open(due - timedelta(microseconds=1), zone, hours)
            assert not any(is_open(time + part * (due - time) / 7, zone, hours) for part in range(7))


@given(st.lists(TIMES, min_size=2, max_size=2).map(sorted), st.sampled_from(ZONES), WINDOWS)
def test_the_order_of_times_stays(times: list[datetime], zone: str, hours: SendWindow) -> None:
    first, second = moved(times, zone, hours)
    assert first <= second


@pytest.mark.parametrize(
    ("hours", "time", "expected"),
    [
        ("08:00-20:00", "2026-11-30T07:59:59.999999", "2026-11-30T08:00"),
        ("08:00-20:00", "2026-11-30T08:00", "2026-11-30T08:00"),
        ("08:00-20:00", "2026-11-30T19:59:59.999999", "2026-11-30T19:59:59.999999"),
        ("08:00-20:00", "2026-11-30T20:00", "2026-12-01T08:00"),
        ("08:00-24:00", "2026-11-30T23:59", "2026-11-30T23:59"),
        ("22:00-06:00", "2026-11-30T05:59", "2026-11-30T05:59"),
        ("22:00-06:00", "2026-11-30T06:00", "2026-11-30T22:00"),
        ("22:00-6:00", "2026-11-30T23:00", "2026-11-30T23:00"),
        ("mon-fri 08:00-20:00", "2026-11-28T12:00", "2026-11-30T08:00"),
        ("Fri-Mon, Wed 08:00-20:00", "2026-12-01T12:00", "2026-12-02T08:00"),
        ("sat 22:00-06:00", "2026-11-29T05:00", "2026-11-29T05:00"),
        ("sat 22:00-06:00", "2026-11-29T07:00", "2026-12-05T22:00"),
        # 02:00 to 03:00 is skipped: the opening is the first moment after the gap
        ("02:30-20:00", "2026-03-29T01:00", "2026-03-29T03:00"),
        ("20:00-02:30", "2026-03-29T01:59", "2026-03-29T01:59"),
        # a window that is skipped entirely does not open
        ("02:10-02:50", "2026-03-29T01:00", "2026-03-30T02:10"),
    ],
)
def test_hours_in_berlin(hours: str, time: str, expected: str) -> None:
    assert moved([in_berlin(time)], "Europe/Berlin", window(hours)) == [in_berlin(expected)]


def test_a_window_that_opened_the_day_before_yesterday_is_still_open() -> None:
    """By UTC it is so in the evening of a zone in the west."""
    time = datetime(2026, 12, 1, 20, 30, tzinfo=ZoneInfo("America/New_York"))
    assert moved([time], "America/New_York", window("22:00-21:00")) == [time]


def test_an_opening_in_the_repeated_hour_is_the_first_one() -> None:
    first, second = (datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1))
    assert moved([datetime(2026, 10, 24, 22, tzinfo=UTC)], "Europe/Berlin", window("02:30-20:00")) == [first]
    assert moved([first, second], "Europe/Berlin", window("02:30-20:00")) == [first, second]
    closed = moved([second - timedelta(hours=1), second], "Europe/Berlin", window("01:00-02:30"))
    assert closed == [datetime(2026, 10, 26, 0, tzinfo=UTC)] * 2  # it closes at the first 02:30


def test_a_day_that_is_skipped_has_no_window() -> None:
    apia = ZoneInfo("Pacific/Apia")  # where 30 December 2011 was none
    assert moved([datetime(2011, 12, 29, 21, tzinfo=apia)], "Pacific/Apia", window("08:00-20:00")) == [
        datetime(2011, 12, 31, 8, tzinfo=apia)
    ]


def test_each_row_has_its_own_zone_or_is_rejected() -> None:
    at_noon = datetime(2026, 11, 30, 12, tzinfo=UTC)
    zones = ["Europe/Berlin", "Asia/Tokyo", None, "Mars/Olympus", ""]
    found = sent([at_noon] * 5, zones, window("08:00-20:00"))
    assert found.staged.column("due_time").to_pylist() == [at_noon, at_noon + timedelta(hours=11)]
    unknown = "time zone is unknown; write it as in Europe/Berlin or UTC"
    assert reasons(found) == ["time zone is null (see the option timeZone)", unknown, unknown]
    default = sent([at_noon] * 5, zones, window("08:00-20:00"), time_zone="America/New_York")
    assert default.staged.column("due_time").to_pylist()[2] == at_noon + timedelta(hours=1)
    assert reasons(default) == [unknown] * 2


def test_a_time_at_the_end_of_the_calendar_is_rejected_where_no_window_opens() -> None:
    found = sent([LATEST_DUE_TIME, LATEST_DUE_TIME - timedelta(days=3)], ["UTC"] * 2, window("08:00-20:00"))
    assert reasons(found) == ["due_time is out of range"]
    assert found.staged.num_rows == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "20:00", "08:00", "8-20", "25:00-26:00", "08:00-24:01", "24:00-08:00", "08:60-20:00", "08:00-20:00 mon"),
        *("xyz 08:00-20:00", "mon-tue-wed 08:00-20:00", "mon, 08:00-20:00", "- 08:00-20:00", "x" * 500),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_window_is_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no window; write 08:00-20:00") as caught:
        window(text)
    assert len(str(caught.value)) < 150


def test_a_window_of_no_length_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="opens and closes at the same time"):
        window("08:00-08:00")
