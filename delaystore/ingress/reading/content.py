"""What an arrival carries, decoded once."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from delaystore.headers import CLUSTER_ID, MARKS, USER_ID
from delaystore.ingress.reading._values import EPOCH, read_table
from delaystore.ingress.reading.rejection import RejectedArrivalError
from delaystore.message import FAR_TIMESTAMPS
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE
from delaystore.transports.rabbitmq.raw import MalformedPropertiesError, MalformedTableError, RawProperties

_PERSISTENT: Final = b"\x02"
_TRANSIENT: Final = 1
_KEPT_AS_HEADERS: Final = {"user_id": USER_ID, "cluster_id": CLUSTER_ID}
"""Properties that a forwarded message cannot have, by the header that says what they were."""
_DROPPED: Final = MARKS.union(COUNTED_BY_QUEUE)
_TABLE_SIZE: Final = 4
"""Bytes before a table."""


class Content:
    """The headers and properties of an arrival; its reader's own, and changed by it to what the message is to have.

    `message_id`: as it came; None: it has none. `problems`: why a header cannot be carried, by its name.
    `size`: the bytes of all this in the arrival.
    """

    __slots__ = ("headers", "message_id", "problems", "properties", "size")

    def __init__(
        self,
        headers: dict[str, Any],
        properties: dict[str, Any],
        message_id: str | None,
        problems: dict[str, str],
        size: int,
    ) -> None:
        self.headers = headers
        self.properties = properties
        self.message_id = message_id
        self.problems = problems
        self.size = size


def read_content(raw: RawProperties) -> Content:
    """The content of a message with these properties, without what its queue counted, and without headers that
    only a dispatcher may write.

    A delivery mode of 2 is left out, as it is what forwarded messages have; any other is 1, as RabbitMQ takes it.
    user_id and cluster_id become headers. Raises RejectedArrivalError for what cannot be read.
    """
    try:
        fields = raw.fields
        table = fields.get("headers")
        headers, problems = ({}, {}) if table is None else read_table(table, _TABLE_SIZE, len(table))
    except (MalformedPropertiesError, MalformedTableError) as error:
        raise RejectedArrivalError(f"its headers or properties cannot be read: {error}") from None
    for name in _DROPPED.intersection(headers):
        del headers[name]
    message_id: str | None = None
    properties: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "message_id":
            message_id = _text(name, value)
        elif name == "delivery_mode":
            if value != _PERSISTENT:
                properties[name] = _TRANSIENT
        elif name == "priority":
            properties[name] = value[0]
        elif name == "timestamp":
            properties[name] = _timestamp(value)
        elif name in _KEPT_AS_HEADERS:
            headers[_KEPT_AS_HEADERS[name]] = _text(name, value)
        elif name != "headers":
            properties[name] = _text(name, value)
    return Content(headers, properties, message_id, problems, len(raw.encoded))


def text_of(headers: Mapping[str, Any], name: str) -> str | None:
    """A header that is text, and not empty; None: there is none. Raises RejectedArrivalError for anything else."""
    value = headers.get(name)
    if value is None or value == "":
        return None
    if type(value) is not str:
        raise RejectedArrivalError(f"header {name} is no text but {shown(value)}")
    return value


def shown(value: object) -> str:
    """A value as a reason names it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _text(name: str, value: bytes) -> str:
    try:
        return value[1:].decode()
    except UnicodeDecodeError:
        raise RejectedArrivalError(f"property {name} is no UTF-8: {shown(value[1:])}") from None


def _timestamp(value: bytes) -> Any:
    seconds = int.from_bytes(value)
    return seconds if seconds in FAR_TIMESTAMPS else EPOCH + timedelta(seconds=seconds)
