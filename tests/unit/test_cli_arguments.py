"""Durations and times as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from delaystore.errors import ConfigurationError
from delaystore.text import parse_duration, parse_instant


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta(0)),
        ("90", timedelta(seconds=90)),
        ("1.5", timedelta(seconds=1.5)),
        ("90s", timedelta(seconds=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("15m", timedelta(minutes=15)),
        ("2h30m", timedelta(hours=2, minutes=30)),
        ("1.5h", timedelta(minutes=90)),
        ("3d", timedelta(days=3)),
        ("1w 2d 3h 4m 5s 6ms", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5, milliseconds=6)),
        (" 3 D ", timedelta(days=3)),
    ],
)
def test_a_friendly_duration_is_understood(text: str, expected: timedelta) -> None:
    assert parse_duration(text, "--delay") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-5", "negative"),
        ("-3d", "negative"),
        ("", "no duration"),
        ("soon", "no duration"),
        ("3x", "no duration"),
        ("3d!", "no duration"),
        ("1e9", "no duration"),
        ("٣d", "no duration"),
        ("inf", "no duration"),
        ("9" * 400 + "d", "out of range"),
        ("99999999999d", "out of range"),
    ],
)
def test_a_duration_that_makes_no_sense_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        parse_duration(text, "--delay")
    assert "--delay" in str(refused.value)


@pytest.mark.parametrize("text", ["2027-01-31T09:00:00+01:00", "2027-01-31T08:00Z", "20270131T080000Z"])
def test_a_time_with_its_offset_is_understood(text: str) -> None:
    assert parse_instant(text, "--at") == datetime(2027, 1, 31, 8, tzinfo=UTC)


def test_a_time_without_an_offset_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match=r"no time zone; add an offset, as in 2027-01-31T09:00:00Z"):
        parse_instant("2027-01-31T09:00", "--at")


@pytest.mark.parametrize("text", ["tomorrow", "", "2027-13-01T00:00Z", "1893456000"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--at"):
        parse_instant(text, "--at")
