"""Text that people and programs write: names, amounts, durations, times, addresses, secrets in files, header names."""

import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn
from unicodedata import category
from urllib.parse import unquote_to_bytes
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delaystore.errors import ConfigurationError, TransportSetupError, UnsupportedMessageError


def control_character(name: str) -> str | None:
    """The first control character of `name` (Unicode's category Cc, such as a line break); None: it has none."""
    if name.isprintable():
        return None
    return next((character for character in name if category(character) == "Cc"), None)


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def roughly(number: int) -> str:
    """Three digits of an estimate: `about 10,200,000`."""
    return f"about {round(number, 3 - len(str(number))):,}"


def up_to(number: int, noun: str = "", *, exact: bool) -> str:
    """A count that may have stopped early, as of failing messages: `1,234`, `10,000 or more`."""
    text = f"{number:,}" if exact else f"{number:,} or more"
    return f"{text} {noun}{'' if number == 1 else 's'}" if noun else text


def named(names: Sequence[str], most: int = 10) -> str:
    """The first names, and how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_HEX_WIDTH: Final = 16


def hex_dump(body: bytes) -> str:
    """Lines of bytes in hexadecimal, each with the place of its first byte, and the printable characters beside."""
    lines = (body[begin : begin + _HEX_WIDTH] for begin in range(0, len(body), _HEX_WIDTH))
    return "\n".join(
        f"{n * _HEX_WIDTH:06x}  {line.hex(' '):<{3 * _HEX_WIDTH}} "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        for n, line in enumerate(lines)
    )


_MOST_DIGITS: Final = 30
"""More than any time that can be kept; Python itself refuses 4,300."""


def clamped_int(text: str) -> int:
    """The whole number in ASCII digits, perhaps with a sign; one of too many digits becomes 10**30 with its sign."""
    return int(text) if len(text) <= _MOST_DIGITS else 10**_MOST_DIGITS * (-1 if text[0] == "-" else 1)


def rate_text(rate: float) -> str:
    """Messages a second, or a minute or an hour where it is less than one in ten: `120/s`, `3.5/min`."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if rate * seconds >= 0.1:
            each = rate * seconds
            return f"{each:,.0f}/{unit}" if each >= 10 else f"{each:.2g}/{unit}"
    return "0/s"


def limit_text(max_rate: float) -> str:
    """A destination's limit: `12.5/s`; a slow one in a minute or an hour, as it was given: `4/h`."""
    for unit, seconds in (("s", 1), ("m", 60)):
        if max_rate * seconds >= 0.1:
            return f"{max_rate * seconds:g}/{unit}"
    return f"{max_rate * 3600:g}/h"


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
"""Without a T: the century is unknown, as in X.509, or it is a time to the minute."""
_DIGITS: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)?", re.ASCII)


def parse_duration(text: str, option: str) -> timedelta:
    """Parse a duration, such as `3d`, `2h30m`, `1.5h`, `250ms`, or a number of seconds.

    Args:
        text: The duration.
        option: What errors call it.

    Returns:
        The duration, 0 or more.

    Raises:
        ConfigurationError: It is no duration, negative, or out of range.

    """
    if re.search("M(?![A-Za-z])", text):  # by which many mean months
        raise ConfigurationError(f"{option} {text!r} has a capital M; write m or min for minutes, and days for months")
    cleaned = text.strip().lower()
    if cleaned.startswith("-"):
        raise ConfigurationError(f"{option} {text!r} is negative; leave out the minus")
    if _SECONDS.fullmatch(cleaned):
        cleaned += "s"
    if not _WHOLE.fullmatch(cleaned):
        raise ConfigurationError(f"{option} {text!r} is no duration; write 90s, 15m, 2h30m, 3d, or a number of seconds")
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(cleaned)), timedelta(0))
    except (OverflowError, ValueError):
        raise ConfigurationError(f"{option} {text!r} is out of range") from None


def parse_shift(text: str, option: str) -> timedelta:
    """Parse a duration as `parse_duration`; with `-` before it, it is negative."""
    found = re.fullmatch(r"\s*([+-]?)(\d.*)", text, re.ASCII | re.DOTALL)
    if found is None:
        raise ConfigurationError(f"{option} {text!r} is no duration; write 7d, 2h30m, or -2h for an earlier time")
    return parse_duration(found[2], option) * (-1 if found[1] == "-" else 1)


def zone(name: str) -> ZoneInfo:
    """The time zone of that name; ConfigurationError if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise ConfigurationError(f"the time zone {name!r} is unknown; write it as in Europe/Berlin or UTC") from None


_SECOND: Final = timedelta(seconds=1)


def first_shown(local: datetime) -> datetime:
    """When the clocks of `local` show it first, in UTC; if they skip it, the first moment after the gap."""
    first, second = (local.replace(fold=fold) for fold in (0, 1))
    before, after = first.utcoffset(), second.utcoffset()
    assert before is not None
    assert after is not None
    if before >= after:
        return first.astimezone(UTC)
    assert local.tzinfo is not None
    early, late = (each.astimezone(UTC).replace(microsecond=0) for each in (second, first))
    return clock_change(local.tzinfo, early, late)


def clock_change(where: tzinfo, early: datetime, late: datetime) -> datetime:
    """When the clocks of `where` change, which they do once after `early` and at `late` at the latest.

    Args:
        where: The time zone.
        early: A time in UTC, in whole seconds.
        late: A later one.

    Returns:
        The first second, in UTC, that has the new offset.

    """
    before = early.astimezone(where).utcoffset()
    while late - early > _SECOND:
        middle = (early + (late - early) / 2).replace(microsecond=0)
        early, late = (middle, late) if middle.astimezone(where).utcoffset() == before else (early, middle)
    return late


def parse_time(text: str) -> datetime:
    """Parse a time in a form of RFC 3339 or ISO 8601.

    Args:
        text: The time, with `T`, `t` or one space between date and time; 14 digits with an offset need none. A date
            alone is its midnight. Digits after the sixth of a second's fraction are cut off.

    Returns:
        The time; naive if the text has no offset.

    Raises:
        ValueError: It is in no such form. The text is a clause without a subject.

    """
    written = text.strip()
    if found := _TIME.fullmatch(written):
        with suppress(ValueError):
            return datetime.fromisoformat((f"{found[1]}T{found[2]}" if found[1] else written).upper())
    if found := _SHORT.fullmatch(written):
        with_t = f"{found[1]}T{found[2]}{found[3]}"
        raise ValueError(f"has no T between date and time; write {with_t}")
    if _DIGITS.fullmatch(written):
        raise ValueError("is a number without a unit; write 2027-01-31T09:00:00+01:00")
    raise ValueError("is not a time in a form that delaystore reads; write 2027-01-31T09:00:00+01:00")


def parse_instant(text: str, option: str) -> datetime:
    """Parse a time as `parse_time`, which must have an offset.

    Args:
        text: The time.
        option: What errors call it.

    Raises:
        ConfigurationError: It is no time, or has no offset.

    """
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


def duration_text(span: timedelta, *, spaced: bool = False) -> str:
    """A duration for people, its two largest units; a negative one is 0s.

    Args:
        span: The duration.
        spaced: As in a sentence: 350 ms, 4.2 s, 2 min 10 s, 1,553 d 4 h. False: as `parse_duration` reads it: 350ms,
            4.2s, 2m10s, 1553d4h.

    """
    if spaced:
        return " ".join(f"{number:,} {'min' if unit == 'm' else unit}" for number, unit in _parts_of(span))
    return "".join(f"{number}{unit}" for number, unit in _parts_of(span))


def exact_duration_text(span: timedelta) -> str:
    """A duration in words, with all its units: `7 days`, `-2 hours 30 minutes`, `1.5 seconds`."""
    rest, parts = abs(span), []
    for unit in ("day", "hour", "minute"):
        number, rest = divmod(rest, timedelta(**{f"{unit}s": 1}))
        parts += [counted(number, unit)] if number else []
    if rest or not parts:
        seconds = f"{rest.seconds}.{rest.microseconds:06}".rstrip("0").rstrip(".")
        parts.append(f"{seconds} second{'' if seconds == '1' else 's'}")
    return ("-" if span < timedelta(0) else "") + " ".join(parts)


def _parts_of(span: timedelta) -> list[tuple[float, str]]:
    seconds = span.total_seconds()
    if seconds < 0.0005:
        return [(0, "s")]
    if seconds < 0.9995:
        return [(round(seconds * 1000), "ms")]
    if seconds < 9.95:
        tenths = round(seconds, 1)
        return [(int(tenths) if tenths.is_integer() else tenths, "s")]
    rest, parts = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(rest, int(_UNITS[unit].total_seconds()))
        parts.append((number, unit))
    first = next(at for at, (number, _) in enumerate(parts) if number)
    return [part for part in parts[first : first + 2] if part[0]]


def overdue_text(overdue: timedelta | None) -> str:
    """How long ago the oldest message was due that is not at its destination, in words; None or zero: there is none."""
    return f"the oldest message is overdue for {duration_text(overdue)}" if overdue else "nothing is overdue"


def time_text(instant: datetime | None) -> str:
    """A time for people, to the second, in UTC; nothing for None."""
    return "" if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def text_or_file(given: str, name: str, what: str = "the URL") -> str:
    """Read a value that may be in a file, such as a URL with a password.

    Args:
        given: The value, or `@FILE`.
        name: What errors call it.
        what: The expected content of the file's one line.

    Returns:
        The value.

    Raises:
        ConfigurationError: The file cannot be read, or has not exactly one line.

    """
    if not given.startswith("@"):
        return given
    try:
        lines = contents(given, name).strip().splitlines()
    except UnicodeDecodeError:
        lines = []
    if len(lines) != 1:
        raise ConfigurationError(f"{name} {given}: the file must hold one line, {what}, and nothing else")
    return lines[0]


def contents(given: str, name: str) -> str:
    """The text of the file of `@FILE`. Raises ConfigurationError; UnicodeDecodeError if it is no UTF-8."""
    try:
        return Path(given[1:]).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{name} {given}: the file cannot be read: {error.strerror}") from None
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        raise ConfigurationError(f"{name} {given!r}: there can be no such file") from None  # a null character


def toml_in(path: Path) -> Mapping[str, Any]:
    """The tables of a TOML file. Raises ConfigurationError, for invalid TOML with line and column."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no UTF-8 text, at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from None
    except ValueError:  # Python reads no whole number of more than 4,300 digits
        raise ConfigurationError(
            f"{path} is no TOML that can be read: it has a number of thousands of digits"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{path} is nested too deeply") from None


MAX_SHORT_STRING_BYTES: Final = 255
"""The longest exchange name or routing key (AMQP 0-9-1, 4.2.5.3: short strings)."""
DEFAULT_EXCHANGE: Final = ""
"""The exchange every queue is bound to by its own name."""


class Address(NamedTuple):
    """Where a message is published: an exchange and a routing key."""

    exchange: str
    routing_key: str


@lru_cache(maxsize=4096)
def parse_address(destination: str) -> Address:
    """Parse the destination of a message.

    Args:
        destination: A plain name or `/queues/NAME`: a queue, reached through the default exchange. `/exchanges/NAME` or
            `/exchanges/NAME/ROUTING.KEY`: an exchange (https://www.rabbitmq.com/docs/amqp#addresses). The parts of an
            address are percent-encoded UTF-8.

    Returns:
        Exchange and routing key.

    Raises:
        UnsupportedMessageError: It is another address, or a name is too long or has a control character.

    """
    if not destination.startswith("/"):
        return Address(DEFAULT_EXCHANGE, _name(destination, destination))
    kind, *parts = destination[1:].split("/")
    if kind == "queues" and len(parts) == 1 and parts[0]:
        return Address(DEFAULT_EXCHANGE, _name(_decoded(parts[0], destination), destination))
    if kind == "exchanges" and len(parts) in (1, 2) and parts[0]:
        exchange, routing_key = (_decoded(part, destination) for part in (*parts, "")[:2])
        return Address(_name(exchange, destination), routing_key)
    raise UnsupportedMessageError(
        f"destination {destination!r} is no address; write /queues/NAME or /exchanges/NAME/ROUTING.KEY, percent-encoded"
    )


def queue_or_none(queue: str) -> str | None:
    """The name of the queue that `queue`, a plain name or `/queues/NAME`, means; None: it names an exchange.

    Raises UnsupportedMessageError for a text that is no address.
    """
    address = parse_address(queue)
    return address.routing_key if address.exchange == DEFAULT_EXCHANGE else None


@lru_cache(maxsize=4096)
def queue_of(destination: str) -> str:
    """The name of the queue that `destination` means, for transports without exchanges.

    Raises UnsupportedMessageError for an exchange's address, and for a text that is no address.
    """
    name = queue_or_none(destination)
    if name is None:
        raise UnsupportedMessageError(
            f"the destination {destination!r} is no queue; this transport takes a queue name or /queues/NAME"
        )
    return name


def named_queue(queue: str) -> str:
    """The queue that `queue`, a name or `/queues/NAME`, stands for, where a queue itself is asked for.

    Raises TransportSetupError for an exchange's address, and for a text that is no address.
    """
    try:
        name = queue_or_none(queue)
    except UnsupportedMessageError as error:
        raise TransportSetupError(str(error)) from None
    if name is None:
        raise TransportSetupError(f"{queue!r} is an exchange; name a queue, as in /queues/NAME")
    return name


def _decoded(part: str, destination: str) -> str:
    try:
        return _short(unquote_to_bytes(part).decode(), destination)
    except UnicodeError:
        raise UnsupportedMessageError(
            f"destination {destination!r} does not decode to UTF-8; percent-encode the UTF-8 bytes of each name"
        ) from None


def _short(text: str, destination: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UnsupportedMessageError(f"destination {destination[:80]!r} cannot be written as UTF-8") from None
    if size > MAX_SHORT_STRING_BYTES:
        raise UnsupportedMessageError(
            f"destination {destination[:40]!r}... has a name of {size} bytes; "
            f"AMQP allows {MAX_SHORT_STRING_BYTES} for an exchange or routing key"
        )
    return text


def _name(text: str, destination: str) -> str:
    """`text`, if a queue or an exchange may be called so; a routing key may hold anything."""
    character = control_character(text)
    if character is not None:
        raise UnsupportedMessageError(
            f"destination {destination[:80]!r} names something with the control character {character!r}"
        )
    return _short(text, destination)


EXCEPTION_TYPE: Final = "NServiceBus.ExceptionInfo.ExceptionType"
EXCEPTION_MESSAGE: Final = "NServiceBus.ExceptionInfo.Message"
STACK_TRACE: Final = "NServiceBus.ExceptionInfo.StackTrace"
TIME_OF_FAILURE: Final = "NServiceBus.TimeOfFailure"
FAILED_QUEUE: Final = "NServiceBus.FailedQ"
FAILURE_COUNT: Final = "delaystore.failure-count"
DUE_TIME: Final = "delaystore.due-time"
NOT_AFTER_HEADER: Final = "delaystore.not-after"
"""The latest delivery of a message that an ingress takes."""
MAX_LATE_HEADER: Final = "delaystore.max-late"
"""The same, in milliseconds after the due time."""
EXPIRATION: Final = "delaystore.expiration"
"""Keeps a message's own expiration where it must not take effect: in the error queue and in native delays."""
RAW_HEADERS: Final = "delaystore.raw-headers"
"""Headers as text: of a message that cannot be decoded, or headers that the error queue cannot take."""
RAW_PROPERTIES: Final = "delaystore.raw-properties"
"""Properties as text, for the same reasons."""
RAW_COLUMNS: Final = "delaystore.raw-columns"
"""The other columns of a stored row that is no message: JSON, by column."""
UNREAD_HEADERS: Final = "delaystore.unread-headers"
"""In place of headers that this program cannot read: why it cannot."""
UNDECODED: Final = "delaystore.raw"
"""In place of a SQL queue's headers or properties that are not our JSON: their text."""
HEADERS_IN_BODY: Final = "delaystore.headers-in-body"
"""Bytes of the body's first line, which holds headers and properties that the error queue cannot take."""
USER_ID: Final = "delaystore.user-id"
"""Keeps the property user_id of a message that an ingress took: RabbitMQ refuses any but the publisher's own."""
CLUSTER_ID: Final = "delaystore.cluster-id"
"""Keeps the property cluster_id, which AMQP 0-9-1 no longer has."""
DESTINATION: Final = "delaystore.destination"
"""Where a message that an ingress takes is to go, if its ingress goes by headers."""
REJECTED_REASON: Final = "delaystore.rejected-reason"
"""Why a message or a request is in a rejected queue."""
REJECTED_PROPERTIES: Final = "delaystore.rejected-properties"
"""Its properties as they came, where they cannot be read; with `-size`: how many of the body's first bytes they are."""
FORWARDED_TO: Final = "delaystore.forwarded-to"
"""The destination to which an ingress has its message forwarded, where a loop could begin there."""
HOPS: Final = "delaystore.hops"
"""How often RabbitMQ has brought a message from there to an ingress."""
CARBON_COPIES: Final = {"CC": "delaystore.cc", "BCC": "delaystore.bcc"}
"""Headers by which RabbitMQ delivers copies to more routing keys, and headers that keep them where it must not."""
FAILED_CARBON_COPIES: Final = {"CC": "delaystore.failed-cc", "BCC": "delaystore.failed-bcc"}
"""The same in the error queue, of a message that was to be delivered with them. Only a dispatcher writes these."""
REPLAY_HEADERS: Final = frozenset(
    {RAW_HEADERS, RAW_PROPERTIES, UNREAD_HEADERS, HEADERS_IN_BODY, *FAILED_CARBON_COPIES.values()}
)
"""Headers by which a replay reads a copy in the error queue. A sender's own headers of these names are dropped."""


def without_carbon_copies(headers: Mapping[str, Any], kept_as: Mapping[str, str] = CARBON_COPIES) -> Mapping[str, Any]:
    """Rename CC and BCC among headers, so that RabbitMQ delivers no copies.

    RabbitMQ checks the rights of the account that publishes. A message that delaystore publishes for another user
    has delaystore's account, which may write to every queue. So CC goes on in two cases only: a program sent the
    message with `send`, or it goes to the exchange that stands behind the one that its publisher chose.

    Args:
        headers: The headers.
        kept_as: The new names, by the old ones. Headers that have these names already are left out.

    Returns:
        The headers; the same object, if nothing changes.

    """
    if headers.keys().isdisjoint(kept_as):
        return headers
    return {kept_as.get(name, name): value for name, value in headers.items() if name not in kept_as.values()}


DEEPEST: Final = 100
"""Levels of arrays and objects that are read."""


class JsonError(ValueError):
    """Text that is refused. Its own text is a clause without a subject, as in "is no JSON: NaN is no number"."""


class AmbiguousJsonError(JsonError):
    """An object has one name twice."""


class DeepJsonError(JsonError):
    """Arrays and objects are nested to more than DEEPEST levels."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON more strictly than `json.loads`.

    Args:
        text: The JSON text; bytes are UTF-8.

    Returns:
        Its value.

    Raises:
        JsonError: It is no JSON; or it has NaN, an infinity, a number that is too large or too small for a float, half
            a surrogate pair, a name twice in one object, or more than DEEPEST levels.

    """
    try:
        written = text if isinstance(text, str) else text.decode()
        value = _DECODER.decode(written)
        if "\\u" in written or not written.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except JsonError:
        raise
    except UnicodeDecodeError:
        raise JsonError("is no UTF-8") from None
    except UnicodeEncodeError:
        raise JsonError("holds half a character: a surrogate, \\ud800 to \\udfff, without its pair") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise JsonError(f"is no JSON: {error}") from None
    if written.count("[") + written.count("{") > DEEPEST:
        check_depth(value)
    return value


def strict_decoder(parse_int: Callable[[str], Any] | None = None) -> json.JSONDecoder:
    """A decoder with the same rules for numbers and names; it leaves depth and surrogates to its caller."""
    return json.JSONDecoder(
        parse_int=parse_int or _whole, parse_float=_finite, parse_constant=_no_number, object_pairs_hook=_distinct
    )


def check_depth(value: Any, levels: int = DEEPEST) -> None:
    """Raise DeepJsonError for a value that is nested to more than `levels`."""
    if is_deeper(value, levels):
        raise _too_deep()


def is_deeper(value: Any, levels: int) -> bool:
    """Whether dicts and lists are nested in `value` to more than `levels`."""
    if type(value) not in (dict, list):
        return False
    level = [value]
    for _ in range(levels):
        items = chain.from_iterable(each.values() if type(each) is dict else each for each in level)
        level = [item for item in items if type(item) in (dict, list)]
        if not level:
            return False
    return True


def _too_deep() -> DeepJsonError:
    return DeepJsonError(f"is nested too deeply: more than {DEEPEST} levels")


def _distinct(pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise AmbiguousJsonError(f"has the name {json.dumps(twice[:40])} twice in one object")
    return members


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        digits, most = len(text.lstrip("-")), sys.get_int_max_str_digits()
        raise JsonError(f"has a number of {digits:,} digits, which is more than {most:,}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError(f"has the number {text[:40]}, which is beyond what a number can hold")
    if not number and text.lower().partition("e")[0].strip("-0."):
        raise JsonError(f"has the number {text[:40]}, which would become 0")
    return number


def _no_number(text: str) -> NoReturn:
    raise JsonError(f"is no JSON: {text} is no number in JSON")


_DECODER: Final = strict_decoder()
