"""The content of an incoming message: body, headers, properties, hops, and what brokers have counted."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from delaystore.errors import UnsupportedMessageError
from delaystore.ingress.reading.incoming import EPOCH, IncomingMessage, RejectedMessageError, read_table
from delaystore.message import FAR_TIMESTAMPS
from delaystore.text import CLUSTER_ID, FORWARDED_TO, HOPS, REPLAY_HEADERS, USER_ID, parse_address
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE
from delaystore.transports.rabbitmq.raw import MalformedPropertiesError, MalformedTableError, RawProperties

DEATHS: Final = "x-death"
"""The newest first, by queue and reason."""
_EXPIRATION: Final = "original-expiration"
_DETAILS: Final = ("queue", "reason", "exchange")


class IncomingContent:
    """The headers and properties of an incoming message. Its reader changes them to those of the message to store.

    `message_id`: as it came; None: it has none. `problems`: why a header cannot be carried, by its name.
    `size`: the bytes of all this in the incoming message.
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


def undo_deaths(content: IncomingContent, queue: str) -> None:
    """Remove the headers that `queue` added, and restore the expiration that it took. Headers of other queues stay.

    A queue that dead-letters takes a message's expiration off, for any reason of dead-lettering.
    """
    deaths = content.headers.get(DEATHS)
    if not isinstance(deaths, list):
        return
    own = [death for death in deaths if _died_in(death, queue)]
    if not own:
        return
    others = [death for death in deaths if not _died_in(death, queue)]
    expiration = own[0].get(_EXPIRATION)
    if isinstance(expiration, str):
        content.properties.setdefault("expiration", expiration)
    _replace(content.headers, others, queue)


def _replace(headers: dict[str, Any], others: list[Any], queue: str) -> None:
    if others:
        headers[DEATHS] = others
    else:
        del headers[DEATHS]
    if headers.get("x-first-death-queue") == queue:
        _remove(headers, "x-first-death-")
    if headers.get("x-last-death-queue") == queue:
        _remove(headers, "x-last-death-")
        last = others[0] if others else None
        if isinstance(last, Mapping):
            headers.update({f"x-last-death-{name}": last[name] for name in _DETAILS if name in last})


def _remove(headers: dict[str, Any], prefix: str) -> None:
    for name in _DETAILS:
        headers.pop(f"{prefix}{name}", None)


def _died_in(death: object, queue: str) -> bool:
    return isinstance(death, Mapping) and death.get("queue") == queue


MOST: Final = 20
"""Times that RabbitMQ may bring a message back. Ingresses one behind the other are a few."""


def count_hop(headers: dict[str, Any], incoming: IncomingMessage, *, asks_again: bool) -> int:
    """Remove an ingress's notes about this message; how often it has come back by now. Raises RejectedMessageError.

    `asks_again`: whether a program has asked for a delay since the message was forwarded.
    """
    noted, hops = headers.pop(FORWARDED_TO, None), headers.pop(HOPS, 0)
    if noted is None or asks_again or not _is_published_to(noted, incoming):
        return 0
    hops = hops + 1 if type(hops) is int and hops > 0 else 1
    if hops > MOST:
        raise RejectedMessageError(
            f"it was forwarded to {noted}, and RabbitMQ has brought it back from there {MOST} times, without a program "
            "in between: correct the bindings that lead from there to an ingress"
        )
    return hops


def note_hop(headers: dict[str, Any], hops: int, destination: str) -> None:
    """Note where the message is forwarded to, and how often it has come back."""
    headers[FORWARDED_TO] = destination
    if hops:
        headers[HOPS] = hops


def _is_published_to(noted: object, incoming: IncomingMessage) -> bool:
    try:
        return isinstance(noted, str) and parse_address(noted) == (incoming.exchange, incoming.routing_key)
    except UnsupportedMessageError:
        return False


RECEIVED: Final = "timestamp_in_ms"
"""Milliseconds since 1970, by the clock of the broker that was given the message: its message interceptor's header."""
_EARLIEST: Final = 10**12
"""In 2001. A smaller number counts something else than milliseconds, or is made up."""
_STEP: Final = timedelta(seconds=1)
"""A timestamp is cut to whole seconds; the delay counts from the end of its second, and is never too short."""


class CountFrom(StrEnum):
    """From when a delay counts, if not from when the ingress received the message.

    RECEIVED: from when the broker was given the message, if its header says so. SENT: the same, and without such a
    header from the property `timestamp`. TAKEN: always from when the ingress received it.
    """

    RECEIVED = "received"
    SENT = "sent"
    TAKEN = "taken"


def start_of(content: IncomingContent, now: datetime, count_from: CountFrom) -> datetime:
    """When the delay began; never after `now`. Absurd values are not believed."""
    if count_from is CountFrom.TAKEN:
        return now
    received = content.headers.get(RECEIVED)
    if received is not None:
        return _received(received, now)
    if count_from is CountFrom.SENT:
        sent = content.properties.get("timestamp")
        if isinstance(sent, datetime) and sent.timestamp() * 1000 >= _EARLIEST:
            return min(now, sent + _STEP)
    return now


def _received(milliseconds: Any, now: datetime) -> datetime:
    if type(milliseconds) is not int or milliseconds < _EARLIEST:
        return now
    try:
        return min(now, EPOCH + timedelta(milliseconds=milliseconds))
    except OverflowError:
        return now


_PERSISTENT: Final = b"\x02"
_TRANSIENT: Final = 1
_KEPT_AS_HEADERS: Final = {"user_id": USER_ID, "cluster_id": CLUSTER_ID}
"""Properties that a forwarded message cannot have, by the header that has their values."""
_DROPPED: Final = REPLAY_HEADERS.union(COUNTED_BY_QUEUE)
_TABLE_SIZE: Final = 4
"""Bytes before a table."""


def read_content(raw: RawProperties) -> IncomingContent:
    """The content of a message with these properties, without its queue's counters, and without headers that
    only a dispatcher may write.

    A delivery mode of 2 is left out, as forwarded messages have it; any other is 1, as RabbitMQ takes it.
    user_id and cluster_id become headers. Raises RejectedMessageError for content that cannot be read.
    """
    try:
        fields = raw.fields
        table = fields.get("headers")
        headers, problems = ({}, {}) if table is None else read_table(table, _TABLE_SIZE, len(table))
    except (MalformedPropertiesError, MalformedTableError) as error:
        raise RejectedMessageError(f"its headers or properties cannot be read: {error}") from None
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
    return IncomingContent(headers, properties, message_id, problems, len(raw.encoded))


def text_of(headers: Mapping[str, Any], name: str) -> str | None:
    """A header that is text, and not empty; None: there is none. Raises RejectedMessageError for anything else."""
    value = headers.get(name)
    if value is None or value == "":
        return None
    if type(value) is not str:
        raise RejectedMessageError(f"header {name} is no text but {shown(value)}")
    return value


def shown(value: object) -> str:
    """A value as a reason names it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _text(name: str, value: bytes) -> str:
    try:
        return value[1:].decode()
    except UnicodeDecodeError:
        raise RejectedMessageError(f"property {name} is no UTF-8: {shown(value[1:])}") from None


def _timestamp(value: bytes) -> Any:
    seconds = int.from_bytes(value)
    return seconds if seconds in FAR_TIMESTAMPS else EPOCH + timedelta(seconds=seconds)
