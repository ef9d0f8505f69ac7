"""What is shown, and goes to the error queue, of a row that holds no message: whatever can be used of it, and the rest.

Databases hold what is written to them by hand: SQLite any type in any column, MariaDB times such as 0000-00-00.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from delaystore.errors import InvalidMessageError
from delaystore.headers import RAW_COLUMNS, RAW_HEADERS, RAW_PROPERTIES
from delaystore.message import (
    EARLIEST_DUE_TIME,
    NOTHING,
    DelayedMessage,
    UnreadableMessage,
    check_destination,
    check_message_id,
    waiting_until,
)
from delaystore.sql.codec import encode_mapping

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
    """What the store has in place of a message_id; None: it has the message_id."""
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
"""By column: what raises where a value cannot be used, and what makes one that can."""
