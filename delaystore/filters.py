"""Which waiting messages an operation is about, and by how much it moves their due times."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Self

from delaystore.errors import InvalidMessageError
from delaystore.message import (
    EARLIEST_DUE_TIME,
    LATEST_DUE_TIME,
    MAX_LOAD_ID_BYTES,
    MAX_MESSAGE_ID_BYTES,
    NOTHING,
    DelayedMessage,
    check_destination,
    is_load_id,
    span_of,
    utc,
)
from delaystore.text import exact_duration_text, first_shown, parse_time, time_text, zone

ALL: Final = "all"
"""The member of a filter's document that means everything."""
_MAX_HEADERS: Final = 16
"""Headers that one filter names."""
_LONG_NUMBER: Final = 10_000
"""Bits of a number that has more digits than Python writes, or nearly so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Selects the waiting messages that meet all conditions; without conditions, all of them.

    Attributes:
        destination: Equal to it.
        since: Due then or later; aware.
        until: Due before; aware.
        id_prefix: How the message_id begins.
        load: Stored by the load of this id, a stream's id included.
        headers: Each has this value, compared as text; see `header_text`.
        failing: True: forwarding has failed before. False: it has not. None: either.
        paused: True: the message would be due, and its destination is paused. False: it is not so. None: either.

    Raises:
        InvalidMessageError: No message can meet a condition.

    Example:
        ```python
        delivery.operations.cancel(MessageFilter(destination="billing", id_prefix="invoice-"))
        ```

    """

    destination: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    id_prefix: str | None = None
    load: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: NOTHING, hash=False)
    failing: bool | None = None
    paused: bool | None = None

    def __post_init__(self) -> None:
        if self.destination is not None:
            check_destination(self.destination)
        for name in ("since", "until"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else utc(given, name))
        if self.since is not None and self.until is not None and self.since >= self.until:
            times = f"from {self.since.isoformat()} to {self.until.isoformat()}"
            raise InvalidMessageError(f"nothing is due {times}; the second time must be later")
        if self.id_prefix is not None:
            _check_prefix(self.id_prefix)
        if self.load is not None and not is_load_id(self.load):
            raise InvalidMessageError(
                f"load {self.load!r:.80} is no load id, which has 1 to {MAX_LOAD_ID_BYTES} printable ASCII characters"
            )
        for name in ("failing", "paused"):
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidMessageError(f"{name} must be true or false, not {getattr(self, name)!r}")
        _check_headers(self.headers)
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))

    def __bool__(self) -> bool:
        """Whether anything is given."""
        return self != MessageFilter()

    def matches_headers(self, headers: Mapping[str, Any]) -> bool:
        """Whether a message meets the conditions about headers.

        Args:
            headers: The message's headers.

        Returns:
            True also where there are no such conditions.

        """
        return all(name in headers and header_text(headers[name]) == value for name, value in self.headers.items())

    def matches(self, message: DelayedMessage) -> bool:
        """Whether a message meets all conditions. With `load` none does: only the store knows the load of a message.

        Args:
            message: The message.

        Returns:
            True also where there are no conditions.

        """
        return (
            self.load is None
            and (self.destination is None or message.destination == self.destination)
            and (self.since is None or message.due_time >= self.since)
            and (self.until is None or message.due_time < self.until)
            and (self.id_prefix is None or message.message_id.startswith(self.id_prefix))
            and (self.failing is None or (message.failure_count > 0) is self.failing)
            and (self.paused is None or message.is_parked is self.paused)
            and self.matches_headers(message.headers)
        )

    def as_dict(self) -> dict[str, Any]:
        """The conditions, for JSON: times in ISO 8601; `{"all": true}` where there are none."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        found = {name: _as_json(value) for name, value in given.items() if value is not None and value != NOTHING}
        return found or {ALL: True}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Make a filter of a document: the inverse of `as_dict`.

        Args:
            document: The conditions; `{"all": true}` for none.

        Raises:
            InvalidMessageError: The document is anything else: an empty object, or with null or an unknown name.

        """
        given = dict(filter_members(document, (each.name for each in fields(cls))))
        return cls(**given | {name: _time(given[name], name) for name in ("since", "until") if name in given})

    def __str__(self) -> str:
        """For people."""
        document = self.as_dict() if self else {}
        headers = document.pop("headers", {})
        times = {"since": f"due from {time_text(self.since)}", "until": f"due before {time_text(self.until)}"}
        parts = [
            times.get(name, f"{name.replace('_', ' ')} {value}")
            for name, value in document.items()
            if not isinstance(value, bool)
        ]
        parts += [name if value else f"not {name}" for name, value in document.items() if isinstance(value, bool)]
        parts += [f"header {name}={value}" for name, value in headers.items()]
        return ", ".join(parts) or "all messages"


def filter_members(document: object, known: Iterable[str]) -> Mapping[str, Any]:
    """The members of a filter's document; none for `{"all": true}`, the one document that means everything.

    Raises InvalidMessageError for an unknown member, one that says nothing, and a document without any.
    """
    if not isinstance(document, Mapping):
        raise InvalidMessageError(f"a filter must be an object, not {document!r:.80}")
    if not document:
        raise InvalidMessageError(
            'the filter is empty; name a property of the messages, or write {"all": true} for all messages'
        )
    names = [*known, ALL]
    for name, value in document.items():
        if name not in names:
            raise InvalidMessageError(f"unknown filter {name!r}; known are {', '.join(sorted(names))}")
        if value is None or value == {}:
            raise InvalidMessageError(f"the filter's field {name} is empty; give it a value, or leave it out")
    if ALL not in document:
        return document
    if document[ALL] is not True or len(document) > 1:
        raise InvalidMessageError('{"all": true} stands alone: leave `all` out to give another filter')
    return NOTHING


def header_text(value: Any) -> str:
    """A header's value as a filter compares it.

    Text as it is; true, false and null; numbers as `str` has them; the UTF-8 of bytes; ISO 8601, with its offset; lists
    and mappings as JSON.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None or isinstance(value, bool | list | Mapping):
        return json.dumps(_plain(value), ensure_ascii=False)
    try:
        return str(value)
    except ValueError:  # more digits than Python writes
        return hex(value)


def _plain(value: Any) -> Any:
    """`value` with texts in place of what JSON has not."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | float) or _is_short(value) else header_text(value)


def _is_short(value: Any) -> bool:
    """Whether it is a whole number that Python writes."""
    return isinstance(value, int) and value.bit_length() < _LONG_NUMBER


def _check_headers(headers: Mapping[str, str]) -> None:
    if not isinstance(headers, Mapping):
        raise InvalidMessageError(f"headers must be a mapping of names to texts, not {headers!r}")
    if len(headers) > _MAX_HEADERS:
        raise InvalidMessageError(f"a filter names {_MAX_HEADERS} headers at most, not {len(headers)}")
    for name, value in headers.items():
        if type(name) is not str or type(value) is not str:
            raise InvalidMessageError(f"a filter compares headers as text: {name!r} must be a str, not {value!r}")
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            raise InvalidMessageError(f"header {name!r} with {value!r} cannot be written as UTF-8") from None


def _check_prefix(prefix: object) -> None:
    if type(prefix) is not str or not prefix:
        raise InvalidMessageError(f"id_prefix must be text with at least one character, not {prefix!r}")
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError:
        raise InvalidMessageError(f"id_prefix {prefix!r} cannot be written as UTF-8") from None
    if size > MAX_MESSAGE_ID_BYTES or "\0" in prefix:
        raise InvalidMessageError(f"id_prefix {prefix[:40]!r} is longer than any message_id, or has a NUL character")


def _time(value: object, name: str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return parse_time(value)  # type: ignore[arg-type]  # anything else is refused here
    except (AttributeError, ValueError):
        raise InvalidMessageError(f"{name} must be a time in ISO 8601 with its offset, not {value!r:.80}") from None


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else value


EVERYTHING: Final = MessageFilter()
"""All waiting messages."""


_DAY: Final = timedelta(days=1)
_NOTHING: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class Shift:
    """The span by which due times are moved.

    Without a time zone a day is 24 hours. With one, whole days are days of its calendar: a message that is due at nine
    o'clock stays due at nine o'clock when the clocks change. The rest, less than a day, is elapsed time after these. If
    the clocks skip a local time, the first moment after the gap takes its place; of a time that comes twice, the first.

    Attributes:
        by: The span; a negative one moves due times to an earlier time.
        time_zone: The name of the time zone, such as Europe/Berlin; None: a day is 24 hours.

    Raises:
        InvalidMessageError: The span is 0, or longer than the range of due times.
        ConfigurationError: The time zone is unknown.

    """

    by: timedelta
    time_zone: str | None = None

    def __post_init__(self) -> None:
        if not self.by:
            raise InvalidMessageError("by is 0, which changes no due time; give a time such as 7d or -2h")
        if abs(self.by) > LATEST_DUE_TIME - EARLIEST_DUE_TIME:
            raise InvalidMessageError(
                f"by {exact_duration_text(self.by)} is out of range; the latest due time is {LATEST_DUE_TIME:%Y-%m-%d}"
            )
        if self.time_zone is not None:
            zone(self.time_zone)

    def __str__(self) -> str:
        where = "" if self.time_zone is None else f" in {self.time_zone}"
        return f"by {exact_duration_text(self.by)}{where}"

    @classmethod
    def of(cls, by: timedelta | float, time_zone: str | None = None) -> Self:
        """Make a shift by a timedelta or seconds; raises as the class."""
        try:
            return cls(span_of(by, "by"), time_zone)
        except OverflowError:
            raise InvalidMessageError(
                f"by {by} is out of range; the latest due time is {LATEST_DUE_TIME:%Y-%m-%d}"
            ) from None

    @property
    def days(self) -> timedelta:
        """The days of the calendar by which due times move; 0 without a time zone."""
        return _NOTHING if self.time_zone is None else abs(self.by) // _DAY * (_DAY if self.by > _NOTHING else -_DAY)

    def moved(self, due_time: datetime) -> datetime | None:
        """The new due time in UTC of a message that is due at `due_time`; None: that is out of range."""
        days = self.days
        try:
            if days and self.time_zone is not None:
                due_time = first_shown(due_time.astimezone(zone(self.time_zone)) + days)  # by the zone's clocks
            found = due_time + (self.by - days)
        except OverflowError:
            return None
        return found if EARLIEST_DUE_TIME <= found <= LATEST_DUE_TIME else None
