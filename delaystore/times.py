"""Durations and points in time as people write and read them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.errors import ConfigurationError

_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_NUMBER: Final = r"\d+(?:\.\d+)?"
_PART: Final = re.compile(rf"({_NUMBER})\s*(ms|[wdhms])\s*", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_NUMBER}\s*(?:ms|[wdhms])\s*)+", re.ASCII)
_SECONDS: Final = re.compile(_NUMBER, re.ASCII)


def parse_duration(text: str, option: str) -> timedelta:
    """`3d`, `2h30m`, `1.5h`, `250ms`, or a number of seconds; ConfigurationError naming `option` for anything else."""
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


def parse_instant(text: str, option: str) -> datetime:
    """An ISO 8601 date and time with its offset; ConfigurationError naming `option` for anything else."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(f"{option} {text!r} is no ISO 8601 time; write 2027-01-31T09:00:00+01:00") from None
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
