"""Messages as rows, and back; every message passes here, so the columns are written out for speed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from delaystore.errors import InvalidMessageError
from delaystore.failures import FailedAttempt, failures_in
from delaystore.message import (
    LATEST_DUE_TIME,
    DelayedMessage,
    Position,
    UnreadableMessage,
    check_message_id,
    waiting_until,
)
from delaystore.sql.codec import decode_mapping, encode_mapping
from delaystore.sql.columns import NAMES
from delaystore.stores.sql._unreadable import time_or_earliest, unreadable


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


class Rows(Iterator[dict[str, Any]]):
    """The rows of `messages`, one after the other."""

    def __init__(self, messages: Iterable[DelayedMessage]) -> None:
        self._messages = iter(messages)
        self.earliest = LATEST_DUE_TIME
        """The first next attempt of the rows so far."""

    def __next__(self) -> dict[str, Any]:
        row = to_row(next(self._messages))
        if row["next_attempt"] < self.earliest:
            self.earliest = row["next_attempt"]
        return row


def to_message(row: Sequence[Any], key: str | None = None, failures: Sequence[FailedAttempt] = ()) -> DelayedMessage:
    """The message of a row that begins with COLUMNS; an UnreadableMessage where it holds none.

    `key`, `failures`: of the row, where they were read: what is forwarded needs none.
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
