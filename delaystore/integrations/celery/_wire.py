"""Celery's wire format, and when a task is due."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from numbers import Real
from typing import Any, Final, Self
from urllib.parse import quote

from celery.utils.time import maybe_iso8601, maybe_make_aware

from delaystore.errors import UnsupportedMessageError
from delaystore.message import PROPERTY_TYPES
from delaystore.text import parse_time

DUE: Final = "delayed_until"
"""The header that tells a task, as `self.request.get("delayed_until")`, when it was to run."""
_LONGEST_EXPIRATION: Final = 2**32 - 1
"""RabbitMQ's limit, in milliseconds; a worker looks at the header `expires` anyway."""
_NOT_FOR_BROKERS: Final = ("declare", "retry", "retry_policy", "mandatory", "immediate", "timeout", "confirm_timeout")
"""Arguments of `kombu.Producer.publish` that are no part of the message."""
_NATIVE_DELAY: Final = re.compile(r"(?:.*_)?celery_delayed_(?:\d+|delivery)", re.DOTALL)
"""The exchanges of Celery's native delays, perhaps with a prefix of the app's."""
_NOT_KEPT: Final = ("user_id", "cluster_id")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A task's message without its identity and its time: `send`'s arguments."""

    destination: str
    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]


def envelope(producer: Any, body: Any, due: datetime | None, seconds_left: float, **options: Any) -> Envelope:
    """The message of `producer.publish(body, **options)`, without the eta, as it must arrive at `due`.

    None: at any time, as a task without an eta.
    """
    fields = {name: value for name, value in options.items() if name not in _NOT_FOR_BROKERS}
    headers = dict(fields.pop("headers", None) or {})
    exchange, mode = producer._delivery_details(
        fields.pop("exchange", None) or producer.exchange, fields.pop("delivery_mode", None)
    )
    routing_key = fields.pop("routing_key", None)
    content_type, content_encoding = fields.pop("content_type", None), fields.pop("content_encoding", None)
    written, content_type, content_encoding = producer._prepare(
        body,
        fields.pop("serializer", None),
        content_type,
        content_encoding,
        fields.pop("compression", None),
        headers,
    )
    expiration = milliseconds(fields.pop("expiration", None), headers, seconds_left)
    properties = {
        "priority": 0,
        **fields,
        "content_type": content_type,
        "content_encoding": content_encoding,
        "delivery_mode": mode,
        "expiration": expiration,
    }
    return Envelope(
        destination=address(exchange, producer.routing_key if routing_key is None else routing_key),
        body=written.encode(content_encoding or "utf-8") if isinstance(written, str) else bytes(written),
        headers=without_eta(headers, due),
        properties=kept_properties(properties),
    )


def routed(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` of `send_task`, without where a native delay of Celery's has brought the task that is retried.

    Its router chooses then, as for a retry that Celery delays natively. Other tasks are retried where they came from.
    """
    exchange = options.get("exchange")
    came_by_delay = _NATIVE_DELAY.fullmatch(str(getattr(exchange, "name", exchange) or ""))
    left_out = ("exchange", "routing_key") if came_by_delay else ()
    return {name: value for name, value in options.items() if name not in left_out}


def milliseconds(expiration: float | None, headers: Mapping[str, Any], seconds_left: float) -> str | None:
    """`expiration`, in seconds from now, as AMQP's property in a message that leaves the store when it is due.

    The time from the task's `expires` is an instant, so that less time is left then. None where nothing is: the
    worker then gets the task, and says that it expired.
    """
    if expiration is None:
        return None
    if headers.get("expires") is None:
        return str(int(expiration * 1000))
    return time_to_live(expiration - seconds_left)


def time_to_live(seconds: float) -> str | None:
    """The message property, in milliseconds; None: no time is left, or more than RabbitMQ knows."""
    left = int(seconds * 1000)
    return str(left) if 0 < left <= _LONGEST_EXPIRATION else None


def time_after(due: datetime, headers: Mapping[str, Any]) -> timedelta | None:
    """From the due time of a task to its `expires`, which is an instant in its message.

    None: it has none, or has expired before it is due; a worker then gets the task, and says so.
    """
    expires = headers.get("expires")
    try:
        late = parse_time(expires) - due if isinstance(expires, str) else timedelta(0)
    except (TypeError, ValueError):  # a time without a zone is the worker's to read
        return None
    return late if late > timedelta(0) else None


def without_eta(headers: Mapping[str, Any], due: datetime | None) -> dict[str, Any]:
    """`headers` for a worker that runs the task as soon as it gets it; time limits are whole seconds, rounded up.

    Raises UnsupportedMessageError for a header that the store's transport could not write.
    """
    limits = [limit if limit is None else ceil(limit) for limit in headers.get("timelimit") or ()]
    limited = {**headers, "timelimit": limits} if limits else headers
    return {**plain(limited), "eta": None, **({} if due is None else {DUE: due.isoformat()})}


def kept_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The AMQP properties that are set; as Celery does, others are ignored.

    Raises UnsupportedMessageError for one that no stored message has.
    """
    for name in _NOT_KEPT:
        if properties.get(name):
            raise UnsupportedMessageError(f"the store keeps no property {name}; leave it out of apply_async")
    return {name: plain(value) for name, value in properties.items() if name in PROPERTY_TYPES and value is not None}


def address(exchange: str, routing_key: str | None) -> str:
    """The destination that stands for an exchange and its key; a queue's name for the default exchange."""
    key = routing_key or ""
    if exchange:
        return f"/exchanges/{quote(exchange, safe='')}/{quote(key, safe='')}"
    return f"/queues/{quote(key, safe='')}" if key.startswith("/") else key


def plain(value: Any) -> Any:
    """`value` with the types that the store keeps: tuples as lists, subclasses of str as str, naive times in UTC.

    Raises UnsupportedMessageError for a fraction.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        if not value.is_integer():
            raise UnsupportedMessageError(
                f"a header of the task holds {value}, which clients in Python read as a whole number: write it as text"
            )
        return int(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


@dataclass(frozen=True, slots=True)
class TaskDue:
    """`at`: the time, aware, by this process's clock. `delay`: a countdown in seconds; None: an eta was given."""

    at: datetime
    delay: float | None = None

    @classmethod
    def of(cls, app: Any, countdown: Any, eta: Any) -> Self | None:
        """What Celery makes of both: a countdown other than 0 wins. None: at once, or nothing Celery could read."""
        if countdown:
            if not isinstance(countdown, Real):
                return None
            try:
                seconds = float(countdown)
                return cls(datetime.now(UTC) + timedelta(seconds=seconds), seconds)
            except (OverflowError, ValueError):
                return None
        at = None if not eta else read_time(app, eta)
        return None if at is None else cls(at)

    @property
    def seconds_left(self) -> float:
        """From now until then."""
        return seconds_until(self.at) if self.delay is None else self.delay


def read_time(app: Any, text: Any) -> datetime | None:
    """`text`, an ISO 8601 time or a datetime, as a worker of `app` reads it, in UTC; None: it is neither."""
    try:
        found = maybe_iso8601(text)
        return maybe_make_aware(found, app.timezone).astimezone(UTC) if isinstance(found, datetime) else None
    except (AttributeError, OverflowError, TypeError, ValueError):
        return None


def seconds_until(at: datetime) -> float:
    """From now; negative for the past."""
    return (at - datetime.now(UTC)).total_seconds()
