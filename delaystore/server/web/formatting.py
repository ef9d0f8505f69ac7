"""Values as pages show them to people."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup, escape

from delaystore.message import are_same_time, unmarked
from delaystore.stores.abc import Count
from delaystore.text import counted, duration_text, hex_dump, parse_json, roughly
from delaystore.text import zone as zone_of

NOTHING: Final = "\N{EN DASH}"
"""In place of an unknown value."""
_LONGEST_JSON: Final = 2**18
_INDENTED: Final = json.JSONEncoder(indent=2, ensure_ascii=False)


def number(value: float | Count | None) -> str:
    """`1,234`, `about 1,230,000`, `12.5`; NOTHING for None."""
    if value is None:
        return NOTHING
    if isinstance(value, Count):
        return f"{value.messages:,}" if value.exact else roughly(value.messages)
    if isinstance(value, int):
        return f"{value:,}"
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 1 else 2
    return f"{value:,.{digits}f}"


def span(value: timedelta | float | None) -> str:
    """`2 d 3 h`, `1.8 s`, `512 ms`; NOTHING for None. A float: seconds."""
    if value is None:
        return NOTHING
    return duration_text(value if isinstance(value, timedelta) else timedelta(seconds=value), spaced=True)


def instant(value: datetime | None) -> str | Markup:
    """Return a `<time>` that shows `2026-11-24 05:30:12 UTC`; delaystore.js shows the reader's own time instead."""
    if value is None:
        return NOTHING
    text = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(utc(value), text, text)


def utc(value: datetime) -> str:
    """`2026-11-24T05:30:12.123456Z`, as scripts read it."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def from_now(value: datetime | None, now: datetime | None) -> str:
    """`in 2 h 3 min`, `5 s ago`, `now`."""
    if value is None or now is None:
        return ""
    distance = value - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    return f"in {span(distance)}" if distance > timedelta(0) else f"{span(-distance)} ago"


_SHORT: Final = 16
"""Characters that always stay on one line."""
_BREAKS: Final = re.compile(r"(?<=[./_:@=,;+%\\~])(?=[^\W_])|(?<=[a-z])(?=[A-Z])|(?<=-)")
"""Places within an id or a name where a line may end."""


def breakable(text: str) -> Markup:
    """Return `text` with `<wbr>` after the separators of long ids and names, and between the words of CamelCase.

    A part without such a place is divided every _SHORT characters, so that a column is never narrower than that.
    """
    return Markup("").join(escape(part) if len(part) <= _SHORT else _with_breaks(part) for part in _SPACES.split(text))


_SPACES: Final = re.compile(r"(\s+)")


def _with_breaks(word: str) -> Markup:
    parts = [part[at : at + _SHORT] for part in _BREAKS.split(word) for at in range(0, len(part), _SHORT)]
    return Markup("<wbr>").join(parts)


def in_zone(value: datetime, zone: str) -> str:
    """`Mon 2026-12-07 09:00:00 CET`: a time by the clocks of a time zone."""
    return f"{value.astimezone(zone_of(zone)):%a %Y-%m-%d %H:%M:%S %Z}"


def field_time(value: datetime | None) -> str:
    """For a field of the type datetime-local."""
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def as_text(body: bytes) -> str | None:
    """The body as text; None: it is none."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def as_json(body: bytes) -> str | None:
    """The body as JSON with line breaks; None: it is none, or has more than _LONGEST_JSON characters then.

    Deeply nested values are indented so far that 64 KiB would become 60 MB.
    """
    parts, size = [], 0
    try:
        found = parse_json(body)
        if not isinstance(found, dict | list):
            return None
        for part in _INDENTED.iterencode(found):
            size += len(part)
            if size > _LONGEST_JSON:
                return None
            parts.append(part)
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def bodies(body: bytes, most: int) -> dict[str, str]:
    """The first `most` bytes in each form in which they can be shown, the best first."""
    start = body[:most]
    cuts = (start, start[:-1], start[:-2], start[:-3]) if len(body) > most else (start,)  # within a character, perhaps
    text = next((text for text in map(as_text, cuts) if text is not None), None)
    found = {"JSON": as_json(body) if len(body) <= most else None, "Text": text, "Hex": hex_dump(start)}
    return {name: text for name, text in found.items() if text is not None}


def value_text(value: Any) -> str:
    """A header's or property's value on one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(dict(value) if isinstance(value, Mapping) else value)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "number": number,
    "counted": counted,
    "span": span,
    "instant": instant,
    "utc": utc,
    "breakable": breakable,
    "from_now": from_now,
    "in_zone": in_zone,
    "field_time": field_time,
    "due_time": unmarked,
    "value_text": value_text,
    "is_same_time": are_same_time,
}
