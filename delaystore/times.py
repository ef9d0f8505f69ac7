"""Durations and points in time as people write and read them."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.errors import ConfigurationError

_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_NUMBER: Final = r"\d+(?:\.\d+)?"
_PART: Final = re.compile(rf"({_NUMBER})\s*(ms|min|[wdhms])\s*", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_NUMBER}\s*(?:ms|min|[wdhms])\s*)+", re.ASCII)
_SECONDS: Final = re.compile(_NUMBER, re.ASCII)
_HOUR: Final = r"(?:[01]\d|2[0-3])"
_OFFSET: Final = rf"(?:[Zz]|[+-]{_HOUR}(?::?[0-5]\d)?)"
_TIME: Final = re.compile(
    rf"\d{{4}}-\d\d-\d\d(?:[Tt ]{_HOUR}:\d\d(?::\d\d(?:[.,]\d+)?)?{_OFFSET}?)?"
    rf"|\d{{8}}[Tt ]{_HOUR}\d\d(?:\d\d(?:[.,]\d+)?)?{_OFFSET}?"
    rf"|(\d{{8}})({_HOUR}\d{{4}}(?:[.,]\d+)?{_OFFSET})",
    re.ASCII,
)
"""The extended or the basic format of ISO 8601, whole; or 14 digits with an offset, as in LDAP. `fromisoformat` alone
takes any character between date and time, also a digit: it would read 20301130100000Z as 00:00."""
_SHORT: Final = re.compile(rf"(\d{{8}})(\d{{4}})({_OFFSET})", re.ASCII)
"""Without a T: of which century, in X.509, or to the minute?"""
_DIGITS: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)?", re.ASCII)


def parse_duration(text: str, option: str) -> timedelta:
    """`3d`, `2h30m`, `1.5h`, `250ms`, or a number of seconds; ConfigurationError naming `option` for anything else."""
    if re.search("M(?![A-Za-z])", text):  # by which many mean months
        raise ConfigurationError(f"{option} {text!r} has a capital M; write m or min for minutes, and days for months")
    cleaned = text.strip().lower()
    if cleaned.startswith("-"):
        raise ConfigurationError(f"{option} {text!r} is negative; use 0 for at once")
    if _SECONDS.fullmatch(cleaned):
        cleaned += "s"
    if not _WHOLE.fullmatch(cleaned):
        raise ConfigurationError(f"{option} {text!r} is no duration; write 90s, 15m, 2h30m, 3d, or a number of seconds")
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(cleaned)), timedelta(0))
    except (OverflowError, ValueError):
        raise ConfigurationError(f"{option} {text!r} is out of range") from None


def parse_time(text: str) -> datetime:
    """A time in a form of RFC 3339 or ISO 8601; a date is its midnight. Naive where the text has no offset.

    `T`, `t` or one space is between date and time; 14 digits with an offset need none. Digits after the sixth of a
    second's fraction are cut off. Raises ValueError for anything else; its text is a clause without a subject.
    """
    written = text.strip()
    if found := _TIME.fullmatch(written):
        with suppress(ValueError):
            return datetime.fromisoformat((f"{found[1]}T{found[2]}" if found[1] else written).upper())
    if found := _SHORT.fullmatch(written):
        raise ValueError(f"has no T between date and time; write {found[1]}T{found[2]}{found[3]}")
    if _DIGITS.fullmatch(written):
        raise ValueError("is a number, and does not say what it counts; write 2027-01-31T09:00:00+01:00")
    raise ValueError("is not a time in a form that delaystore reads; write 2027-01-31T09:00:00+01:00")


def parse_instant(text: str, option: str) -> datetime:
    """A time as `parse_time` reads it, with its offset; ConfigurationError naming `option` for anything else."""
    try:
        instant = parse_time(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} {text[:80]!r} {error}") from None
    if instant.utcoffset() is None:
        plain = instant.isoformat()
        raise ConfigurationError(
            f"{option} {text!r} has no time zone; add an offset, as in {plain}Z (UTC) or {plain}+01:00"
        )
    return instant


def duration_text(span: timedelta) -> str:
    """A duration for people, as `parse_duration` reads it: 350ms, 4.2s, 2m10s, 3d4h; what is negative is 0s."""
    seconds = span.total_seconds()
    if seconds < 0.0005:
        return "0s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    rest, parts = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(rest, int(_UNITS[unit].total_seconds()))
        parts.append(f"{number}{unit}" if number else "")
    first = next(at for at, part in enumerate(parts) if part)
    return "".join(parts[first : first + 2])


def overdue_text(overdue: timedelta | None) -> str:
    """How long ago the oldest message was due that is not at its destination, in words; None or zero: there is none."""
    return f"the oldest message is overdue for {duration_text(overdue)}" if overdue else "nothing is overdue"


def time_text(instant: datetime | None) -> str:
    """A time for people, to the second, in UTC; nothing for None."""
    return "" if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
