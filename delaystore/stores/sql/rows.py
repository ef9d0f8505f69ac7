"""Rows as messages, also rows that hold none."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from delaystore.errors import InvalidMessageError
from delaystore.message import (
    EARLIEST_DUE_TIME,
    LATEST_DUE_TIME,
    NOTHING,
    DelayedMessage,
    FailedAttempt,
    Position,
    UnreadableMessage,
    check_destination,
    check_message_id,
    failures_in,
    waiting_until,
)
from delaystore.stores.sql.codec import NAMES, decode_mapping, encode_mapping
from delaystore.text import RAW_COLUMNS, RAW_HEADERS, RAW_PROPERTIES

SHOWN: Final = 60
"""Characters shown of an id or destination that is none."""


def unreadable(values: Mapping[str, Any], reason: str) -> UnreadableMessage:
    """A message made of the `values` of a row, by column; a value that cannot be used is in the headers, as text."""
    known, raw = dict(values), {}
    for name, (check, substitute) in _CHECKS.items():
        try:
            check(values[name])
        except (InvalidMessageError, TypeError):
            known[name], raw[name] = substitute(values[name]), _plain(values[name])
    headers = {RAW_HEADERS: _plain(values["headers"]), RAW_PROPERTIES: _plain(values["properties"])}
    if raw:
        headers[RAW_COLUMNS] = encode_mapping(raw)
    stored_id = values["message_id"] if "message_id" in raw else None
    body = _bytes_of(values["body"])
    return UnreadableMessage(
        **known | {"headers": headers, "properties": NOTHING, "body": body}, reason=reason, stored_id=stored_id
    )


def stored_id(message: DelayedMessage) -> Any:
    """The text that the store has in place of a message_id; None: it has the message_id."""
    return message.stored_id if isinstance(message, UnreadableMessage) else None


def time_or_earliest(value: object) -> datetime:
    """`value`, or a time that has passed where it is none: the database has found it to be due."""
    try:
        return waiting_until(value, "time")
    except InvalidMessageError:
        return EARLIEST_DUE_TIME


def _check_count(value: object) -> None:
    if type(value) is not int or value < 0:
        raise InvalidMessageError


def _shown(value: object) -> str:
    """Text that a message_id or a destination may be."""
    return ascii(value)[:SHOWN]


def _plain(value: object) -> Any:
    """`value` in a form that a header can have."""
    if value is None or type(value) in (bool, int, float, bytes, Decimal, datetime):
        return value
    text = str(value)
    try:
        raw = text.encode(errors="surrogateescape")  # what stands for bytes that are no UTF-8 becomes these bytes
    except UnicodeEncodeError:
        return ascii(text)
    return text if raw == text.encode(errors="replace") else raw


def _bytes_of(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"" if body is None else str(body).encode(errors="backslashreplace")


def _nought(_value: object) -> int:
    return 0


def _earliest(_value: object) -> datetime:
    return EARLIEST_DUE_TIME


_CHECKS: Final[Mapping[str, tuple[Callable[[Any], object], Callable[[Any], object]]]] = {
    "message_id": (check_message_id, _shown),
    "destination": (check_destination, _shown),
    "due_time": (lambda value: waiting_until(value, "due_time"), _earliest),
    "next_attempt": (lambda value: waiting_until(value, "next_attempt"), _earliest),
    "failure_count": (_check_count, _nought),
}
"""By column: a function that raises for a value that cannot be used, and one that makes a usable value."""


def to_row(message: DelayedMessage) -> dict[str, Any]:
    """The values of a new row, by column, in the order of COLUMNS."""
    return {
        "message_id": message.message_id,
        "destination": message.destination,
        "due_time": message.due_time,
        "next_attempt": message.next_attempt,
        "failure_count": message.failure_count,
        "headers": encode_mapping(message.headers),
        "properties": encode_mapping(message.properties),
        "body": message.body,
    }


def to_values(message: DelayedMessage) -> tuple[Any, ...]:
    """The values of `to_row`, without a dictionary: for COPY this is called for each of millions."""
    return (
        message.message_id,
        message.destination,
        message.due_time,
        message.next_attempt,
        message.failure_count,
        encode_mapping(message.headers),
        encode_mapping(message.properties),
        message.body,
    )


class MessageRows:
    """The rows of `messages`, one after the other; each is read once."""

    def __init__(self, messages: Iterable[DelayedMessage]) -> None:
        self._messages = iter(messages)
        self.earliest = LATEST_DUE_TIME
        """The first next attempt of the rows so far."""

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Each row's values, in the order of COLUMNS."""
        return map(to_values, self._noted())

    def by_column(self) -> Iterator[dict[str, Any]]:
        """Each row's values, by column."""
        return map(to_row, self._noted())

    def _noted(self) -> Iterator[DelayedMessage]:
        for message in self._messages:
            if message.next_attempt < self.earliest:
                self.earliest = message.next_attempt
            yield message


def to_message(row: Sequence[Any], key: str | None = None, failures: Sequence[FailedAttempt] = ()) -> DelayedMessage:
    """The message of a row that begins with COLUMNS; an UnreadableMessage where it holds none.

    `key`, `failures`: of the row, where they were read: forwarding needs none.
    """
    message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, *_ = row
    try:
        return DelayedMessage(
            message_id=message_id,
            destination=destination,
            due_time=due_time,
            next_attempt=waiting_until(next_attempt, "next_attempt"),
            failure_count=failure_count,
            headers=decode_mapping(headers),
            properties=decode_mapping(properties),
            body=body,
            key=key,
            failures=failures,
        )
    except (ValueError, InvalidMessageError) as error:
        return unreadable(dict(zip(NAMES, row, strict=False)), f"the stored message cannot be decoded: {error}")


def to_shown_message(row: Any) -> DelayedMessage:
    """The message of a row that also has its key, and failures: perhaps those of the message that it replaced."""
    return to_message(row, row.message_key, failures_in(row.failures) if row.failures_of == row.message_id else ())


def to_readable_message(row: Sequence[Any], key: str | None = None) -> DelayedMessage:
    """As `to_message`, but raises InvalidMessageError where the row holds no message."""
    message = to_message(row, key)
    if isinstance(message, UnreadableMessage):
        raise InvalidMessageError(message.reason)
    return message


def position_of_row(row: Any) -> Position:
    """The position of a row; where its time or its id is none, a position before it."""
    try:
        check_message_id(row.message_id)
    except InvalidMessageError:
        return Position(time_or_earliest(row.next_attempt), "")
    return Position(time_or_earliest(row.next_attempt), row.message_id)


def has_position(row: Any) -> bool:
    """Whether the row's position is one that `Position` can say."""
    return position_of_row(row) == (row.next_attempt, row.message_id)
