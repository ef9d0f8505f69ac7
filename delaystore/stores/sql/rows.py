"""Rows as messages, also rows that hold none."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection

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
from delaystore.stores.sql.codec import NAMES, NOT_AFTER, WITH_NOT_AFTER, decode_mapping, encode_mapping
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
    """The values of a new row, by column, in the order of COLUMNS; with NOT_AFTER if the message has one."""
    row = dict(zip(NAMES, to_values(message), strict=True))
    if message.not_after is not None:
        row[NOT_AFTER] = message.not_after
    return row


def to_values(message: DelayedMessage) -> tuple[Any, ...]:
    """The values of `to_row`, without a dictionary: for COPY this is called for each of millions."""
    headers, properties = message.headers, message.properties
    return (
        message.message_id,
        message.destination,
        message.due_time,
        message.next_attempt,
        message.failure_count,
        encode_mapping(headers) if headers else None,
        encode_mapping(properties) if properties else None,
        message.body,
    )


class MessageRows:
    """The rows of `messages`, one after the other; each is read once.

    Rows of one iterator have the same columns. It ends before the first row that needs NOT_AFTER, so that rows without
    a latest delivery name no other columns than those of earlier releases.
    """

    def __init__(self, messages: Iterable[DelayedMessage], require: Callable[[Connection], object]) -> None:
        self._messages, self._require = iter(messages), require
        self._next: DelayedMessage | None = None
        self.names: Sequence[str] = NAMES
        """The columns of the rows that come next: NAMES, or WITH_NOT_AFTER."""
        self.earliest = LATEST_DUE_TIME
        """The first next attempt of the rows so far."""

    def begin(self, connection: Connection) -> bool:
        """Find the columns of the rows that come next; False: there are no more rows.

        Calls `require`, which may raise an error, before the first row with NOT_AFTER.
        """
        if self._next is None:
            self._next = next(self._messages, None)
        if self._next is not None and self._next.not_after is not None and self.names is NAMES:
            self._require(connection)
            self.names = WITH_NOT_AFTER
        return self._next is not None

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Each row's values, in the order of `names`."""
        if self.names is NAMES:
            return map(to_values, self._noted())
        return ((*to_values(message), message.not_after) for message in self._noted())

    def by_column(self) -> Iterator[dict[str, Any]]:
        """Each row's values, by column."""
        if self.names is NAMES:
            return map(to_row, self._noted())
        return ({NOT_AFTER: None, **to_row(message)} for message in self._noted())

    def _noted(self) -> Iterator[DelayedMessage]:
        first, self._next = self._next, None
        has_not_after = self.names is WITH_NOT_AFTER
        for message in chain(() if first is None else (first,), self._messages):
            if message.not_after is not None and not has_not_after:
                self._next = message
                return
            if message.next_attempt < self.earliest:
                self.earliest = message.next_attempt
            yield message


def to_message(
    row: Sequence[Any],
    key: str | None = None,
    failures: Sequence[FailedAttempt] = (),
    not_after: datetime | None = None,
) -> DelayedMessage:
    """The message of a row that begins with COLUMNS; an UnreadableMessage where it holds none.

    `key`, `failures`, `not_after`: of the row, where they were read: forwarding needs no key and no failures.
    """
    message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, *_ = row
    try:
        if not_after is not None and _is_left_over(not_after, due_time):
            not_after = None
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
            not_after=not_after,
        )
    except (ValueError, InvalidMessageError) as error:
        return unreadable(dict(zip(NAMES, row, strict=False)), f"the stored message cannot be decoded: {error}")


def _is_left_over(not_after: object, due_time: object) -> bool:
    """Whether a program of an earlier release, which does not know the column, has given the row a later due time."""
    return isinstance(not_after, datetime) and isinstance(due_time, datetime) and not_after < due_time


def to_shown_message(row: Any) -> DelayedMessage:
    """The message of a row of `shown`; its failures are perhaps those of the message that it replaced."""
    failures = failures_in(row.failures) if row.failures_of == row.message_id else ()
    return to_message(row, row.message_key, failures, row.not_after)


def to_readable_message(
    row: Sequence[Any], key: str | None = None, not_after: datetime | None = None
) -> DelayedMessage:
    """As `to_message`, but raises InvalidMessageError where the row holds no message."""
    message = to_message(row, key, not_after=not_after)
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
