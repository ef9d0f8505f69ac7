"""Messages as rows, and back."""

from typing import Any

from sqlalchemy import ColumnElement, Row, Table

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.stores.sql.codec import decode_mapping, encode_mapping


def message_columns(table: Table) -> list[ColumnElement[Any]]:
    """The columns that `to_message` reads, in its order."""
    names = ("message_id", "destination", "due_time", "next_attempt", "failure_count", "headers", "properties", "body")
    return [table.c[name] for name in names]


def to_row(message: DelayedMessage) -> dict[str, Any]:
    """The values of a new row, by column."""
    return {
        "message_id": message.message_id,
        "destination": message.destination,
        "due_time": message.due_time,
        "next_attempt": message.next_attempt or message.due_time,
        "failure_count": message.failure_count,
        "headers": encode_mapping(message.headers),
        "properties": encode_mapping(message.properties),
        "body": message.body,
    }


def to_message(row: Row[*tuple[Any, ...]]) -> DelayedMessage:
    """The message of a row of `message_columns`; an UnreadableMessage where it cannot be decoded."""
    message_id, destination, due_time, next_attempt, failure_count, headers, properties, body = row
    try:
        return DelayedMessage(
            message_id=message_id,
            destination=destination,
            due_time=due_time,
            next_attempt=None if next_attempt == due_time else next_attempt,
            failure_count=failure_count,
            headers=decode_mapping(headers),
            properties=decode_mapping(properties),
            body=body,
        )
    except (ValueError, InvalidMessageError) as error:
        return UnreadableMessage(
            message_id=message_id,
            destination=destination,
            due_time=due_time,
            next_attempt=None if next_attempt == due_time else next_attempt,
            failure_count=max(failure_count, 0),
            headers={"delaystore.raw-headers": headers, "delaystore.raw-properties": properties},
            body=body if isinstance(body, bytes) else str(body).encode(),
            reason=f"the stored message cannot be decoded: {error}",
        )
