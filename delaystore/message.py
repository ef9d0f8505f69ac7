"""A delayed message: its fields and their limits, its key, and the failed attempts to forward it."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

import uuid_utils

from delaystore.errors import InvalidMessageError
from delaystore.text import control_character, parse_time

KEY_TIMEOUT: Final = 5.0
"""Seconds for which a send waits for a dispatcher or another transaction that has the message of its key."""
_deadline: Final = ContextVar("deadline", default=math.inf)
"""By time.monotonic."""


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Let calls in the block wait no longer for dispatchers and transactions that have its ids or keys.

    One statement may wait for a second more, the shortest wait of some databases.
    """
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def time_left() -> float:
    """Seconds that are left of `waiting_at_most`; infinite outside of it."""
    return _deadline.get() - time.monotonic()


class OnKey(StrEnum):
    """The rule for a new message where one with its key waits."""

    REJECT = "reject"
    """DuplicateKeyError."""
    KEEP = "keep"
    """The one that waits stays as it is; the new one is not stored."""
    REPLACE = "replace"
    """The new one takes its place: message_id, content and due time."""
    DEBOUNCE = "debounce"
    """As `replace`, but due no later than `max_wait` after the first of the messages that have replaced one another."""


class IfDelivered(StrEnum):
    """The rule for a new message whose id was delivered before, as far as the history reaches back."""

    SEND = "send"
    """It is stored, and delivered again."""
    REJECT = "reject"
    """MessageDeliveredError."""

    @classmethod
    def rejects(cls, given: "IfDelivered | str") -> bool:
        """Whether `given` is REJECT, perhaps by its name; InvalidMessageError for another name."""
        try:
            return cls(given) is cls.REJECT
        except ValueError:
            raise InvalidMessageError(f"if_delivered must be one of {', '.join(cls)}, not {given!r}") from None


@dataclass(frozen=True, slots=True)
class KeyRule:
    """An OnKey with its bound.

    Attributes:
        on_key: What to do if the key waits.
        max_wait: How long `debounce` may delay the message in all; None: any time.

    """

    on_key: OnKey = OnKey.REJECT
    max_wait: timedelta | None = None

    @property
    def replaces(self) -> bool:
        """Whether a new message takes the place of the one that has its key."""
        return self.on_key in (OnKey.REPLACE, OnKey.DEBOUNCE)

    @classmethod
    def of(cls, on_key: OnKey | str | None, max_wait: timedelta | float | None) -> Self:
        """Make a rule of the arguments of `send`.

        Args:
            on_key: What to do if the key waits; None: reject the message.
            max_wait: A timedelta or seconds; None: no bound.

        Raises:
            InvalidMessageError: The arguments make no sense.

        """
        try:
            chosen = OnKey.REJECT if on_key is None else OnKey(on_key)
        except ValueError:
            raise InvalidMessageError(f"on_key must be one of {', '.join(OnKey)}, not {on_key!r}") from None
        if max_wait is None:
            return cls(chosen)
        if chosen is not OnKey.DEBOUNCE:
            raise InvalidMessageError(f"max_wait needs on_key='debounce', not {str(chosen)!r}; leave it out")
        return cls(chosen, _span(max_wait, "max_wait"))


def _no_span(given: object, name: str) -> InvalidMessageError:
    return InvalidMessageError(f"{name} must be a timedelta or a number of seconds, not {given!r}")


def span_of(given: timedelta | float, name: str) -> timedelta:
    """A timedelta or seconds; InvalidMessageError for another value, OverflowError for more than a timedelta holds."""
    try:
        if isinstance(given, bool):
            raise TypeError
        return given if isinstance(given, timedelta) else timedelta(seconds=given)
    except (TypeError, ValueError):
        raise _no_span(given, name) from None


def _span(given: timedelta | float, name: str) -> timedelta:
    try:
        span = span_of(given, name)
    except OverflowError:
        raise _no_span(given, name) from None
    if span <= timedelta(0):
        raise InvalidMessageError(f"{name} is {given}; it must be more than 0")
    return span


LONGEST_REASON: Final = 500
"""Characters kept of a reason."""
KEPT: Final = 8_000
"""Characters kept of all lines of one message together; the oldest go first."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt to forward a message that failed.

    Attributes:
        at: When it failed, on the store's clock, UTC.
        kind: One word, as in the error queue: Refused, Unavailable, Unconfirmed, Unroutable, Unreadable.
        reason: Why, for people, on one line.

    """

    at: datetime
    kind: str
    reason: str

    def line(self) -> str:
        """As one line of JSON, in ASCII, with its line break."""
        reason = " ".join(self.reason.split())[:LONGEST_REASON].rstrip()
        return json.dumps([self.at.astimezone(UTC).isoformat(), self.kind, reason], separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """The inverse of `line`; raises ValueError for anything else."""
        try:
            at, kind, reason = values = json.loads(line)
            instant = datetime.fromisoformat(at)
            if isinstance(values, list) and instant.tzinfo is not None and type(kind) is type(reason) is str:
                return cls(instant.astimezone(UTC), kind, reason)
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass
        raise ValueError(f"not a failed attempt: {line[:80]!r}")


def with_attempt(failures: Sequence[FailedAttempt], attempt: FailedAttempt) -> Sequence[FailedAttempt]:
    """`failures` and one more `attempt`, as a store keeps them: cut, and without the oldest that find no room."""
    text = "".join(each.line() for each in (*failures, attempt))
    return failures_in(text[-KEPT:])


def failures_in(text: str | None) -> Sequence[FailedAttempt]:
    """The failed attempts in the lines of `text`, the oldest first; lines that cannot be read, such as a cut one,
    are left out.
    """
    found: list[FailedAttempt] = []
    for line in (text or "").splitlines():
        try:
            found.append(FailedAttempt.from_line(line))
        except ValueError:
            continue
    return tuple(found)


MAX_MESSAGE_ID_BYTES: Final = 255
"""AMQP 0-9-1 sends message-id as a short string."""
MAX_KEY_BYTES: Final = 255
"""As many as every database can keep unique."""
MAX_LOAD_ID_BYTES: Final = 255
"""Printable ASCII, which every database compares alike."""
MAX_DESTINATION_BYTES: Final = 255
"""AMQP 0-9-1's limit for a routing key. The transport checks the names within an address."""
MAX_ADDRESS_BYTES: Final = 1600
"""Room for `/exchanges/NAME/KEY` with two short strings, percent-encoded."""
EARLIEST_DUE_TIME: Final = datetime(1, 1, 2, tzinfo=UTC)
"""A day after the first of datetime, so that every session's time zone can show it."""
LATEST_DUE_TIME: Final = datetime(9999, 12, 30, tzinfo=UTC)
"""A day before the last of datetime, so that every session's time zone can show it."""
PARKED: Final = LATEST_DUE_TIME
"""The next attempt of a message that would be due, but whose destination is paused."""
PROPERTY_TYPES: Final[Mapping[str, type]] = MappingProxyType(
    {
        "content_type": str,
        "content_encoding": str,
        "correlation_id": str,
        "reply_to": str,
        "type": str,
        "priority": int,
        "expiration": str,
        "app_id": str,
        "timestamp": datetime,
        "delivery_mode": int,
    }
)
"""The AMQP 0-9-1 message properties that are kept, and their Python types; for timestamp see also FAR_TIMESTAMPS."""
PROPERTY_RANGES: Final = {"priority": range(256), "delivery_mode": range(1, 3)}
"""The numbers that AMQP 0-9-1 allows. The transport checks `expiration`, as its limits are the broker's."""
FAR_TIMESTAMPS: Final = range(int(LATEST_DUE_TIME.timestamp()) + 1, 2**64)
"""Seconds since 1970 that AMQP holds and our datetimes do not: a program may have given milliseconds."""
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
"""No headers, no properties."""
MAX_HEADER_DEPTH: Final = 32
_MARK: Final = timedelta(microseconds=1)
MARKS: Final = timedelta(milliseconds=1)
"""Due times of one message that differ by less than this differ by nothing but marks, see `marked`."""
_PLAIN: Final = frozenset({bool, int, float, Decimal, str, bytes})


def new_message_id() -> str:
    """A fresh id, time-ordered (UUIDv7), so that a large index grows at its end."""
    return str(uuid_utils.uuid7())


def made_at(message_id: str) -> datetime | None:
    """When an id was made, to the millisecond, if it is a UUIDv7 as of `new_message_id`; None: it is another."""
    try:
        made = UUID(message_id)
        is_timed = made.version == 7 and str(made) == message_id
        return datetime.fromtimestamp((made.int >> 80) / 1000, UTC) if is_timed else None
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMessage:
    """A message that waits for its due time.

    Attributes:
        message_id: Unique among the waiting messages of a store; 1 to 255 bytes of UTF-8. Retries, hand-over and
            migration do not change it, so that a receiver can deduplicate.
        destination: A queue name (1 to 255 bytes), or `/queues/NAME` or `/exchanges/NAME/ROUTING.KEY`, percent-encoded;
            without control characters, such as line breaks.
        due_time: Aware, kept in UTC with microseconds. Retries never change it.
        body: The content.
        headers: str to None, bool, int, float, Decimal, str, bytes, aware datetime, and lists and str-keyed mappings of
            these. `send` refuses headers that the transport cannot carry.
        properties: AMQP message properties by name, see `PROPERTY_TYPES`.
        failure_count: How often forwarding has failed.
        next_attempt: When to forward it: the due time unless given, and later after a failure.
        key: At most one message with it waits in a store; 1 to 255 bytes of UTF-8, no control characters. None: it has
            none. Receivers do not get it, and a message that a dispatcher has fetched may lack it.
        not_after: Its latest delivery, aware, kept in UTC, not before the due time: a dispatcher does not forward it
            later, but lets it expire. None: it is delivered however late. Receivers do not get it.
        failures: Why forwarding has failed, the oldest attempt first, as far as the store has kept it. A message that a
            dispatcher has fetched lacks it. Comparisons ignore it.

    Raises:
        InvalidMessageError: At construction. The text names the fault.

    """

    message_id: str
    destination: str
    due_time: datetime
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    properties: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    failure_count: int = 0
    next_attempt: datetime = None  # type: ignore[assignment]  # `__post_init__` puts the due time there
    key: str | None = None
    not_after: datetime | None = None
    failures: Sequence[FailedAttempt] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_message_id(self.message_id)
        check_destination(self.destination)
        object.__setattr__(self, "due_time", waiting_until(self.due_time, "due_time"))
        given: datetime | None = self.next_attempt
        next_attempt = self.due_time if given is None else waiting_until(given, "next_attempt")
        object.__setattr__(self, "next_attempt", next_attempt)
        if type(self.body) is not bytes:
            raise InvalidMessageError(f"body must be bytes, not {type(self.body).__name__}; encode it first")
        if self.headers is not NOTHING:
            check_headers(self.headers)
        if self.properties is not NOTHING:
            check_properties(self.properties)
        if type(self.failure_count) is not int or self.failure_count < 0:
            raise InvalidMessageError(f"failure_count must be a whole number from 0, not {self.failure_count!r}")
        if self.key is not None:
            check_key(self.key)
        if self.not_after is not None:
            object.__setattr__(self, "not_after", _latest_delivery(self.not_after, self.due_time))

    @property
    def is_parked(self) -> bool:
        """Whether it would be due, but waits for its destination to be resumed."""
        return self.next_attempt >= PARKED > self.due_time


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableMessage(DelayedMessage):
    """A stored row that holds no message.

    A store returns it in place of the message, so that a bad row does not stop the others. `headers` holds the raw text
    under `delaystore.raw-headers` and `delaystore.raw-properties`, and the row's values in place of an id, a
    destination, a time or a count under `delaystore.raw-columns`, as JSON; these attributes are substitutes then.
    `reason` names the fault. `stored_id`: the text that the store has in place of a message_id; None: it is the
    message_id. The dispatcher moves it to the error queue.
    """

    reason: str
    stored_id: Any = None

    def __post_init__(self) -> None:
        """Checks nothing: something is wrong with this message anyway."""
        given: datetime | None = self.next_attempt
        object.__setattr__(self, "next_attempt", given or self.due_time)


class Position(NamedTuple):
    """A point in the order in which stores show and list messages."""

    next_attempt: datetime
    message_id: str

    def __str__(self) -> str:
        return f"{self.next_attempt.astimezone(UTC).isoformat()}~{self.message_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`; raises ValueError for anything else."""
        instant, mark, message_id = text.partition("~")
        next_attempt = parse_time(instant)
        if not mark or next_attempt.tzinfo is None or "\0" in message_id:
            raise ValueError(f"not a position: {text!r}")
        return cls(next_attempt, message_id)


def position_of(message: Any) -> Position:
    """The position of a message, or of a row that has the columns of one."""
    return Position(message.next_attempt, message.message_id)


def utc(instant: object, name: str) -> datetime:
    """`instant` in UTC. Raises InvalidMessageError, which calls it `name`, if it is naive or out of range."""
    if not isinstance(instant, datetime):
        raise InvalidMessageError(f"{name} must be a datetime, not {type(instant).__name__}")
    if instant.tzinfo is UTC and instant <= LATEST_DUE_TIME:
        return instant
    if instant.utcoffset() is None:
        raise InvalidMessageError(
            f"{name} {instant.isoformat()} has no time zone; use an aware datetime, such as datetime.now(UTC)"
        )
    try:
        instant = instant.astimezone(UTC)
    except OverflowError:
        raise InvalidMessageError(f"{name} {instant.isoformat()} is out of range") from None
    if instant > LATEST_DUE_TIME:
        raise InvalidMessageError(
            f"{name} {instant.isoformat()} is out of range; the latest is {LATEST_DUE_TIME:%Y-%m-%d}"
        )
    return instant


def waiting_until(instant: object, name: str) -> datetime:
    """As `utc`, but refuses also a time before EARLIEST_DUE_TIME."""
    found = utc(instant, name)
    if found < EARLIEST_DUE_TIME:
        raise InvalidMessageError(
            f"{name} {found.isoformat()} is out of range; the earliest is {EARLIEST_DUE_TIME.date()}"
        )
    return found


def marked(due_time: datetime) -> datetime:
    """The due time of a waiting message once a sender knows that it waits: a microsecond earlier.

    A dispatcher that has sent the message already, and could not remove it, then no longer takes it for that one, and
    sends it again. The earliest due time moves the other way. People see the time without marks, see `unmarked`.
    """
    return due_time - _MARK if due_time > EARLIEST_DUE_TIME else EARLIEST_DUE_TIME + _MARK


def are_same_time(one: datetime, other: datetime) -> bool:
    """Whether two times differ by nothing but marks: one for each sender that knows of the message, see `marked`."""
    return abs(one - other) < MARKS


def unmarked(message: Any) -> datetime:
    """The due time that the sender of a waiting message gave, as people and the audit trail see it: without marks.

    It is the next attempt, which no mark changes. One that has failed, was postponed or is parked has another next
    attempt, and its due time stays as it is.

    Args:
        message: The message, or a row that has the columns of one.

    Returns:
        The due time.

    """
    next_attempt: datetime = message.next_attempt
    due_time: datetime = message.due_time
    are_times = isinstance(next_attempt, datetime) and isinstance(due_time, datetime)  # a bad row may hold none
    return next_attempt if are_times and are_same_time(next_attempt, due_time) else due_time


NO_BODY: Final = "give exactly one of body= (bytes) and json= (a value that is not None)"


def json_content(
    body: bytes | None, value: Any, properties: Mapping[str, Any] | None
) -> tuple[bytes, Mapping[str, Any]]:
    """The body and the properties of a message whose body is the JSON of `value`. Raises InvalidMessageError if there
    is a body, too, and for a value that has no JSON.
    """
    if body is not None:
        raise InvalidMessageError(NO_BODY)
    try:
        made = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:  # half a surrogate pair is a ValueError
        raise InvalidMessageError(f"the value of json= cannot be written as JSON: {error}") from None
    return made, {"content_type": "application/json", **(properties or {})}


def due_after(now: datetime, delay: timedelta | float) -> datetime:
    """`now` and `delay`, a timedelta or seconds; raises InvalidMessageError if that is negative or too long."""
    try:
        span = span_of(delay, "delay")
        due_time = now + span
    except OverflowError:
        raise InvalidMessageError(
            f"delay {delay} is out of range; the latest due time is {LATEST_DUE_TIME:%Y-%m-%d}"
        ) from None
    if span < timedelta(0):
        raise InvalidMessageError(f"delay {delay} is negative; use 0 for a message that is due at once")
    return due_time


def latest_delivery_of(
    due_time: datetime, not_after: datetime | None, max_late: timedelta | float | None
) -> datetime | None:
    """The latest delivery of a message, of the arguments of `send`.

    Args:
        due_time: When the message is due.
        not_after: The latest delivery; None: not given.
        max_late: How long after the due time, as a timedelta or in seconds; None: not given.

    Returns:
        The latest delivery; None: the message has none.

    Raises:
        InvalidMessageError: Both are given, or `max_late` is no time above 0.

    """
    if max_late is None:
        return not_after
    if not_after is not None:
        raise InvalidMessageError("not_after and max_late are both given; pass one of them")
    span = _span(max_late, "max_late")
    try:
        return utc(due_time, "due_time") + span
    except OverflowError:
        raise InvalidMessageError(
            f"max_late {max_late} is out of range; the latest delivery can be on {LATEST_DUE_TIME:%Y-%m-%d}"
        ) from None


def _latest_delivery(not_after: object, due_time: datetime) -> datetime:
    limit = waiting_until(not_after, "not_after")
    if limit < due_time:
        raise InvalidMessageError(
            f"not_after {limit.isoformat()} is before the due time {due_time.isoformat()}, so that the message would "
            "never be delivered; choose a later one"
        )
    return limit


def moved(message: DelayedMessage, due_time: datetime) -> datetime | None:
    """The latest delivery of `message` once it is due at `due_time`: as long after the due time as before."""
    if message.not_after is None:
        return None
    return due_time + min(message.not_after - message.due_time, LATEST_DUE_TIME - due_time)


def check_message_id(message_id: str) -> None:
    """Raise InvalidMessageError unless `message_id` fits AMQP's message-id and every store's key."""
    _check_text(message_id, "message_id", MAX_MESSAGE_ID_BYTES)


def check_key(key: str) -> None:
    """Raise InvalidMessageError unless `key` is text of 1 to 255 bytes without control characters."""
    _check_text(key, "key", MAX_KEY_BYTES)
    _refuse_control_characters(key, "key")


def is_load_id(load_id: object) -> bool:
    """Whether a load can have that id: 1 to 255 printable ASCII characters."""
    is_text = isinstance(load_id, str) and load_id.isascii() and load_id.isprintable()
    return is_text and 0 < len(str(load_id)) <= MAX_LOAD_ID_BYTES


def check_destination(destination: str) -> None:
    """Raise InvalidMessageError unless `destination` is a queue name or an address string of bearable length.

    It has no control characters either; the transport checks percent-encoded ones of an address.
    """
    is_address = isinstance(destination, str) and destination.startswith("/")
    _check_text(destination, "destination", MAX_ADDRESS_BYTES if is_address else MAX_DESTINATION_BYTES)
    _refuse_control_characters(destination, "destination")


def _refuse_control_characters(text: str, name: str) -> None:
    character = control_character(text)
    if character is not None:
        raise InvalidMessageError(f"{name} {text[:80]!r} contains the control character {character!r}")


def _check_text(text: str, name: str, limit: int) -> None:
    if type(text) is not str:
        raise InvalidMessageError(f"{name} must be a str, not {type(text).__name__}")
    if not text:
        raise InvalidMessageError(f"{name} is empty")
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise InvalidMessageError(f"{name} {text!r} cannot be written as UTF-8") from None
    if size > limit:
        raise InvalidMessageError(f"{name} {text[:40]!r}... has {size} bytes; at most {limit} are allowed")
    if "\0" in text:
        raise InvalidMessageError(f"{name} {text!r} contains a NUL character")


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raise InvalidMessageError for a property that is not in `PROPERTY_TYPES`, or of the wrong type."""
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"properties must be a mapping, not {type(properties).__name__}")
    for name, value in properties.items():
        expected = PROPERTY_TYPES.get(name)
        if expected is None:
            raise InvalidMessageError(f"unknown property {name!r}; known are {', '.join(PROPERTY_TYPES)}")
        if expected is datetime and type(value) is int:
            _check_far_timestamp(value, name)
        elif type(value) is not expected:
            raise InvalidMessageError(f"property {name} must be {expected.__name__}, not {type(value).__name__}")
        elif expected is datetime:
            utc(value, f"property {name}")
        elif type(value) is str:
            _check_unicode(value, f"property {name}")
        elif name in PROPERTY_RANGES and value not in PROPERTY_RANGES[name]:
            allowed = PROPERTY_RANGES[name]
            raise InvalidMessageError(f"property {name} must be from {allowed[0]} to {allowed[-1]}, not {value}")


def _check_far_timestamp(seconds: int, name: str) -> None:
    if seconds not in FAR_TIMESTAMPS:
        raise InvalidMessageError(
            f"property {name} must be a datetime, not {seconds}: numbers are for what is after {LATEST_DUE_TIME.date()}"
        )


def check_headers(headers: Mapping[str, Any]) -> None:
    """Raise InvalidMessageError, naming the header, for a name or value that a store could not return unchanged."""
    if type(headers) is not dict and not isinstance(headers, Mapping):
        raise InvalidMessageError(f"headers must be a mapping, not {type(headers).__name__}")
    for name, value in headers.items():
        if type(name) is not str:
            raise InvalidMessageError(f"header names must be str, not {type(name).__name__} ({name!r})")
        _check_unicode(name, "a header's name")
        _check_value(value, f"header {name!r}")


def _check_value(value: Any, path: str, depth: int = 0) -> None:
    if type(value) is str:
        _check_unicode(value, path)
        return
    if value is None or type(value) in _PLAIN:
        return
    if depth > MAX_HEADER_DEPTH:
        raise InvalidMessageError(f"{path} is nested deeper than {MAX_HEADER_DEPTH} levels")
    if type(value) is list:
        for item in value:
            _check_value(item, path, depth + 1)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if type(name) is not str:
                raise InvalidMessageError(f"{path}: names must be str, not {type(name).__name__} ({name!r})")
            _check_unicode(name, f"a name in {path}")
            _check_value(item, f"{path}[{name!r}]", depth + 1)
    elif isinstance(value, datetime):
        utc(value, path)
    else:
        raise InvalidMessageError(f"{path} is a {type(value).__name__}, which no message header can hold")


def _check_unicode(text: str, path: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidMessageError(f"{path} holds half a surrogate pair ({text[:40]!a}), which UTF-8 cannot") from None
