"""Times as people and programs write them: each text that is read means one instant, everywhere."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.errors import ConfigurationError
from delaystore.text import parse_duration, parse_time

OFFSETS = st.none() | st.builds(timezone, st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda n: timedelta(minutes=n)))
INSTANTS = st.datetimes(timezones=OFFSETS)


def offsets(instant: datetime) -> list[str]:
    """All that an offset may be written as; of none: nothing."""
    if (offset := instant.utcoffset()) is None:
        return [""]
    colon = instant.isoformat()[-6:]
    found = [colon, colon.replace(":", "")]
    found += ["Z", "z"] if not offset else []
    return [*found, colon[:3]] if colon.endswith("00") else found


def forms(instant: datetime) -> list[str]:
    """All texts of `instant`."""
    year, rest = f"{instant.year:04}", instant.replace(tzinfo=None)
    found = []
    for separator in "Tt ":
        for form in (f"-%m-%d{separator}%H:%M:%S", f"%m%d{separator}%H%M%S"):
            whole = year + rest.strftime(form)
            fraction = f"{instant.microsecond:06}"
            found += [f"{whole}{mark}{fraction}{more}" for mark in ".," for more in ("", "0", "789")]
            if not instant.microsecond:
                found.append(whole)
                if not instant.second:
                    found.append(whole[:-3] if ":" in whole else whole[:-2])
    return [text + offset for text in found for offset in offsets(instant)]


@given(INSTANTS)
def test_every_form_of_an_instant_means_it(instant: datetime) -> None:
    for text in forms(instant):
        assert parse_time(text) == instant, text
        assert parse_time(f" {text}\n") == instant


@given(INSTANTS.filter(lambda instant: instant.tzinfo is not None))
def test_fourteen_digits_with_an_offset_mean_their_instant(instant: datetime) -> None:
    digits = f"{instant.year:04}" + instant.replace(tzinfo=None).strftime("%m%d%H%M%S")
    for offset in offsets(instant):
        assert parse_time(digits + offset) == instant.replace(microsecond=0)


@given(INSTANTS, st.sampled_from("TtZz+-:., _/0123456789"), st.integers(0, 40))
def test_a_time_that_is_nearly_written_right_is_refused_or_read_as_it_says(
    instant: datetime, character: str, at: int
) -> None:
    """One character more, less or other: it is refused, or its digits mean what they mean without Python's leniency."""
    for text in forms(instant)[::7]:
        for near in (
            text[:at] + character + text[at:],
            text[:at] + text[at + 1 :],
            text[:at] + character + text[at + 1 :],
        ):
            try:
                found = parse_time(near)
            except ValueError:
                continue
            digits = re.sub(r"\D", "", near)
            shown = f"{found.year:04}" + found.replace(tzinfo=None).strftime("%m%d%H%M%S")
            whole = digits[:14] if "." in near or "," in near or len(digits) >= 14 else digits[:12]
            assert shown.startswith(whole[:12]), (near, found)
            if written := re.search(r"([+-])(\d\d):?([0-5]\d)?$", near.strip()[10:]):
                sign, hours, minutes = written.groups("0")
                away = timedelta(hours=int(f"{sign}{hours}"), minutes=int(f"{sign}{minutes}"))
                assert found.utcoffset() == away, (near, found)
            else:
                assert not found.utcoffset(), (near, found)


@pytest.mark.parametrize("text", [
    "20301130", "20301130100000", "1795101512345", "1827122010000", "-1", "0", "1795101512.5", "203011302350Z",
    "2030-11-30100000Z", "2030-11-30T100000Z", "20301130T10:00:00Z", "2030-11-30_10:00:00Z", "2030-11-30510:00:00Z",
    "2030-11-30  10:00:00Z", "2030-11-30T10:00:00 Z", "2030-11-30T10:00:00Zulu", "2030-11-30T10:00:00+1", "2030-11",
    "2030-W48-6T10:00:00Z", "2030-334T10:00:00Z", "2030-11-31T10:00:00Z", "2030-02-29", "2030-11-30T24:00:00Z",
    "2030-11-30T10:00:60Z", "2030-11-30T10Z", "2030-11-30T10:00:00.Z", "2030-11-30T10:00:00+24:00",
    "٢٠٣٠-11-30T10:00:00Z", "2030-11-30T10:00:00+00:99", "2030-11-30T10:00:00-0160", "20301130T100000+0099",
    "20301130100000+0060",
    "10:00:00Z", "30.11.2030 10:00", "11/30/2030", "tomorrow", "", "T", "2030-11-30T", "+2030-11-30T10:00:00Z",
    "261012100000Z",
])  # fmt: skip
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"is not a time in a form that delaystore reads; write|is a number without a unit|has no T between",
    ):
        parse_time(text)


def test_a_date_is_its_midnight() -> None:
    assert parse_time("2030-11-30") == datetime(2030, 11, 30)  # noqa: DTZ001 - it has no offset


def test_the_remedy_is_in_the_message() -> None:
    with pytest.raises(ValueError, match="write 20301130T2350Z"):
        parse_time("203011302350Z")
    assert parse_time("20301130T2350Z") == datetime(2030, 11, 30, 23, 50, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2M", "1h30M", "2 M", "PT15M", "2M5s"])
def test_a_capital_m_is_no_minute(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--delay '.*' has a capital M; write m or min"):
        parse_duration(text, "--delay")


def test_minutes_are_m_or_min() -> None:
    assert parse_duration("2min", "--delay") == parse_duration("1h 2min", "--delay") - timedelta(hours=1)
    assert parse_duration("5MIN", "--delay") == parse_duration("5Min", "--delay") == timedelta(minutes=5)
    assert parse_duration("250MS", "--delay") == timedelta(milliseconds=250)
    with pytest.raises(ConfigurationError, match="'5 Minutes' is no duration; write 90s"):
        parse_duration("5 Minutes", "--delay")
    assert parse_duration("2m", "--delay") == parse_duration("2min", "--delay") == timedelta(minutes=2)


def test_no_other_code_reads_times_from_outside() -> None:
    """`fromisoformat` takes any character for the T. Each file reads what delaystore, or NServiceBus, wrote."""
    ours = {
        "cascades/moving/_planning.py", "message.py", "schedules/definition.py",
        "stores/sql/_listener.py", "stores/sql/_parts.py",
        "stores/sql/codec.py", "stores/sql/operating/_reports.py", "testing/_kit/_store.py", "text.py",
    }  # fmt: skip
    root = Path("delaystore")
    found = {str(each.relative_to(root)) for each in root.rglob("*.py") if "fromisoformat" in each.read_text()}
    assert found == ours
