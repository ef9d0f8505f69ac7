"""NServiceBus' headers, and what they say of a message as AMQP properties."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.strict_json import JsonError, parse_json

MESSAGE_ID: Final = "NServiceBus.MessageId"
SAGA_ID: Final = "NServiceBus.SagaId"
_TYPES: Final = "NServiceBus.EnclosedMessageTypes"
"""`Namespace.Name, Assembly, Version=...;Namespace.Name, ...`."""
_PROPERTIES: Final = {
    "correlation_id": "NServiceBus.CorrelationId",
    "content_type": "NServiceBus.ContentType",
    "reply_to": "NServiceBus.ReplyToAddress",
}
_MAX_PROPERTY_BYTES: Final = 255
"""AMQP's short string. What is longer stays in its header alone."""
_PERSISTENT: Final = 2

Address = Callable[[str], str]
"""From an address of the old transport to a queue's name."""


def as_it_is(address: str) -> str:
    """An address that is a queue's name."""
    return address


def without_machine(address: str) -> str:
    """The queue of an MSMQ address, `queue@machine`: what stands before the @, which no MSMQ queue's name has."""
    return address.partition("@")[0]


ADDRESSES: Final[Mapping[str, Address]] = {"queue": as_it_is, "msmq": without_machine}
"""What a destination means, by the name of the parameter `addresses`."""


def destination(value: Any, address: Address = as_it_is) -> str:
    """The destination that the text of a row means; empty where there is none.

    It is a queue's name, also where it begins with a slash, which our own address strings do.
    """
    queue = address(value) if isinstance(value, str) else ""
    return f"/queues/{quote(queue, safe='')}" if queue.startswith("/") else queue


def parse_json_headers(value: Any) -> dict[str, str | None]:
    """The headers of SQL or NHibernate persistence: `value` is JSON text, or what a driver made of it.

    None and empty text are no headers. Raises InvalidMessageError for what is no object of text.
    """
    if value is None or value == "":
        return {}
    headers = value if isinstance(value, Mapping) else _loaded(value)
    if not isinstance(headers, dict):
        raise InvalidMessageError(f"its headers are a JSON {_json_kind(headers)}, not an object")
    for name, text in headers.items():
        if not isinstance(text, str | None):
            raise InvalidMessageError(f"its header {name!r} is a JSON {_json_kind(text)}, not text")
    return headers


def message_id(headers: Mapping[str, str | None], row_id: Any) -> str:
    """The message's own id, or else the row's; raises InvalidMessageError where that is bytes."""
    if own := headers.get(MESSAGE_ID):
        return own
    if isinstance(row_id, bytes | bytearray | memoryview):
        raise InvalidMessageError("its id is bytes, not text")
    return "" if row_id is None else str(row_id)


def properties(headers: Mapping[str, str | None], address: Address = as_it_is) -> dict[str, Any]:
    """The AMQP properties: those that headers tell, and persistent."""
    told = {name: headers.get(header) for name, header in _PROPERTIES.items()}
    told["type"] = (headers.get(_TYPES) or "").partition(";")[0].partition(",")[0].strip()
    if told["reply_to"]:
        told["reply_to"] = address(told["reply_to"])
    found = {name: text for name, text in told.items() if text and _fits(text)}
    return {**found, "delivery_mode": _PERSISTENT}


def with_saga(headers: dict[str, str | None], saga_id: Any) -> dict[str, str | None]:
    """`headers` and the saga that waits, unless they name one, or there is none (NULL, or a UUID of zeros).

    Raises InvalidMessageError for bytes: nothing here tells the order that a Guid's bytes are in.
    """
    if isinstance(saga_id, bytes | bytearray | memoryview):
        raise InvalidMessageError("its saga's id is bytes, not text")
    saga = "" if saga_id is None else str(saga_id).strip()
    if not saga or SAGA_ID in headers or not saga.strip("{}0-"):
        return headers
    return {**headers, SAGA_ID: saga}


def body(value: Any) -> bytes:
    """Bytes as they are; NULL is empty."""
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidMessageError(f"its body is of the type {type(value).__name__}, not bytes")


def message(
    *,
    row_id: str | UUID | None,
    to: Any,
    due_time: datetime | None,
    state: Any,
    headers: dict[str, str | None],
    saga_id: Any = None,
    address: Address = as_it_is,
) -> DelayedMessage:
    """The message of a row; raises InvalidMessageError saying what is wrong with it."""
    if due_time is None:
        raise InvalidMessageError("it has no due time")
    queue = destination(to, address)
    if not queue:
        raise InvalidMessageError("it has no destination")
    return DelayedMessage(
        message_id=message_id(headers, row_id),
        destination=queue,
        due_time=due_time,
        body=body(state),
        headers=with_saga(headers, saga_id),
        properties=properties(headers, address),
    )


def _fits(text: str) -> bool:
    return len(text.encode(errors="replace")) <= _MAX_PROPERTY_BYTES


def _loaded(value: Any) -> Any:
    if not isinstance(value, str | bytes):
        raise InvalidMessageError(f"its headers are of the type {type(value).__name__}, not text")
    try:
        return parse_json(value)
    except JsonError as error:
        raise InvalidMessageError(f"the text of its headers {error}") from None


def _json_kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean"}
    return kinds.get(type(value), "number")
