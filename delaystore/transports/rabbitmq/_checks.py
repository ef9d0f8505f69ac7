"""Checking that RabbitMQ and pika carry a message unchanged."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pika import spec

from delaystore.address import parse_address
from delaystore.errors import UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.transports.rabbitmq._floats import holds_float
from delaystore.transports.rabbitmq._properties import encoded_properties, read_headers, read_properties

MAX_ENCODED_BYTES: Final = 112 * 1024
"""Headers and properties must fit one frame, 128 KiB by default; the rest is room for the error queue's headers."""
MAX_EXPIRATION_MS: Final = 2**32 - 1
"""RabbitMQ's limit for a time to live, in milliseconds (rabbit_misc, MAX_EXPIRY_TIMER)."""
_ALWAYS_SAME: Final = frozenset({str, bytes, bool, int, type(None)})
"""Types whose values pika decodes to what was encoded, if it encodes them at all."""
_DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"


def check_message(message: DelayedMessage) -> None:
    """Raise UnsupportedMessageError, naming the culprit, unless `message` would arrive as it is."""
    parse_address(message.destination)
    if not message.headers and not message.properties:
        return
    _check_broker_rules(message)
    encoded = encoded_properties(message)
    if len(encoded) > MAX_ENCODED_BYTES:
        raise UnsupportedMessageError(
            f"headers and properties take {len(encoded)} bytes; at most {MAX_ENCODED_BYTES} fit; "
            "move large values into the body"
        )
    if _ALWAYS_SAME.issuperset(map(type, message.headers.values())) and "timestamp" not in message.properties:
        return
    _refuse_floats(message.headers)
    decoded = spec.BasicProperties().decode(encoded)
    _compare("header", message.headers, read_headers(decoded))
    _compare("property", {"delivery_mode": decoded.delivery_mode, **message.properties}, read_properties(decoded))


def _refuse_floats(headers: Mapping[str, Any]) -> None:
    for name, value in headers.items():
        if holds_float(value):
            raise UnsupportedMessageError(
                f"header {name!r} ({type(value).__name__}) holds a float, which pika reads as a whole number; send it "
                "as text or as a Decimal"
            )


def _compare(kind: str, given: Mapping[str, Any], decoded: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if not _same(value, decoded.get(name)):
            raise UnsupportedMessageError(
                f"{kind} {name!r} would arrive as {_short(decoded.get(name))} instead of {_short(value)}; "
                "AMQP as pika writes it has whole seconds in times, and decimals of 32 bits"
            )


def _same(given: Any, decoded: Any) -> bool:
    if isinstance(given, Mapping):
        return (
            isinstance(decoded, dict)
            and given.keys() == decoded.keys()
            and all(_same(value, decoded[name]) for name, value in given.items())
        )
    if isinstance(given, list):
        return isinstance(decoded, list) and len(given) == len(decoded) and all(map(_same, given, decoded))
    if isinstance(given, datetime):
        return isinstance(decoded, datetime) and given == decoded
    return type(given) is type(decoded) and bool(given == decoded)


def _check_broker_rules(message: DelayedMessage) -> None:
    """Refuse what the broker would take away, or close the channel for."""
    if "BCC" in message.headers:
        raise UnsupportedMessageError("header 'BCC' is taken away by RabbitMQ; send a message to each destination")
    carbon = message.headers.get("CC", [])
    if type(carbon) is not list or any(type(key) is not str for key in carbon):
        raise UnsupportedMessageError("header 'CC' must be a list of routing keys: RabbitMQ delivers to each of them")
    properties = message.properties
    expiration = properties.get("expiration", "0")
    if not (expiration.isascii() and expiration.isdigit()) or int(expiration[:300]) > MAX_EXPIRATION_MS:
        raise UnsupportedMessageError(
            f"property expiration {expiration[:40]!r} must be whole milliseconds as text, at most {MAX_EXPIRATION_MS}"
        )
    if properties.get("reply_to") == _DIRECT_REPLY:
        raise UnsupportedMessageError(
            f"property reply_to {_DIRECT_REPLY!r} works only on the connection that waits for the reply; name a queue"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
