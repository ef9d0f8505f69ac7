"""A queue's row as its consumer sees it."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row

from delaystore.headers import UNDECODED
from delaystore.sql.codec import decode_mapping
from delaystore.transports.abc import ReceivedMessage


def received(row: Row[Any]) -> ReceivedMessage:
    """The message in `row`."""
    return ReceivedMessage(
        message_id=row.message_id, body=row.body, headers=_decoded(row.headers), properties=_decoded(row.properties)
    )


def _decoded(text: str | None) -> Mapping[str, Any]:
    """The headers or properties in `text`; the text itself, if somebody else wrote it and it cannot be decoded."""
    try:
        return decode_mapping(text)
    except ValueError:
        return {UNDECODED: text}
