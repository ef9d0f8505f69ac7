"""Messages as rows, and back; every message passes here, so the columns are written out for speed."""

from collections.abc import Sequence
from typing import Any

from delaystore.errors import InvalidMessageError
from delaystore.headers import RAW_HEADERS, RAW_PROPERTIES
from delaystore.message import NOTHING, DelayedMessage, UnreadableMessage
from delaystore.sql.codec import decode_mapping, encode_mapping
from delaystore.sql.columns import NAMES


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


def to_message(row: Sequence[Any]) -> DelayedMessage:
    """The message of a row of COLUMNS; an UnreadableMessage where it cannot be decoded."""
    message_id, destination, due_time, next_attempt, failure_count, headers, properties, body = row
    try:
        return DelayedMessage(
            message_id=message_id,
            destination=destination,
            due_time=due_time,
            next_attempt=next_attempt,
            failure_count=failure_count,
            headers=decode_mapping(headers),
            properties=decode_mapping(properties),
            body=body,
        )
    except (ValueError, InvalidMessageError) as error:
        return _unreadable(dict(zip(NAMES, row, strict=True)), f"the stored message cannot be decoded: {error}")


def to_readable_message(row: Sequence[Any]) -> DelayedMessage:
    """As `to_message`, but raises InvalidMessageError where the row cannot be decoded."""
    message = to_message(row)
    if isinstance(message, UnreadableMessage):
        raise InvalidMessageError(message.reason)
    return message


def _unreadable(values: dict[str, Any], reason: str) -> UnreadableMessage:
    body = values["body"]
    changed = {
        "failure_count": max(values["failure_count"], 0),
        "headers": {RAW_HEADERS: values["headers"], RAW_PROPERTIES: values["properties"]},
        "properties": NOTHING,
        "body": body if isinstance(body, bytes) else str(body).encode(),
    }
    return UnreadableMessage(**values | changed, reason=reason)
