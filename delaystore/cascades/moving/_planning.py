"""Planning of a move: remaining delays, limits, and the copy of each message."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from delaystore.cascades.delivery_limits import current_snapshot, delivery_limit, limited_queues
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.cascades.snapshot import BrokerSnapshot
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.text import EXPIRATION, parse_time
from delaystore.transports.rabbitmq.copies import CARBON_COPIES, Copy, copy_with_reason
from delaystore.transports.rabbitmq.delay_headers import (
    COUNTED_BY_QUEUE,
    DEAD_LETTER_HEADERS,
    DELAY_IN_SECONDS,
    TIME_SENT,
    dated,
    due_time,
    time_sent,
)
from delaystore.transports.rabbitmq.raw import (
    MalformedPropertiesError,
    RawProperties,
    TableEntry,
    bytes_value,
    integer_of,
    integer_value,
    text_of,
    text_value,
    with_entries,
)
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology, DelayKey, DueFrom

_TIME_SENT: Final = TIME_SENT.encode()
_DELAY_IN_SECONDS: Final = DELAY_IN_SECONDS.encode()
_TIME_SENT_LENGTH: Final = len("2026-05-01 12:00:00:000000 Z")
_DECADES: Final = 2**32
"""Seconds; a longer delay may lead beyond the calendar."""
_CELERY_TASK: Final = b"task"
_CELERY_ETA: Final = b"eta"
"""ISO 8601 with an offset, in the headers of a Celery task (task message protocol, version 2)."""


class Remaining(NamedTuple):
    """How long a message has yet to wait; below 0: it is overdue. `exact`: known by its headers."""

    delay: timedelta
    exact: bool


def remaining(
    headers: Mapping[bytes, bytes],
    key: DelayKey,
    level: int,
    cascade: CascadeTopology,
    due_from: DueFrom,
    now: datetime,
) -> Remaining | None:
    """How long a message in the queue of `level` has yet to wait; None: unknown."""
    due = None if due_from is DueFrom.ROUTING_KEY else due_by_headers(headers)
    if due is not None:
        return Remaining(due - now, exact=True)
    if due_from is DueFrom.HEADERS:
        return None
    return Remaining(at_most(key, level, cascade), exact=False)


def due_by_headers(headers: Mapping[bytes, bytes]) -> datetime | None:
    """TimeSent + DelayInSeconds, or a Celery task's eta; None: neither can be read."""
    sent, delay = text_of(headers.get(_TIME_SENT)), integer_of(headers.get(_DELAY_IN_SECONDS))
    due = None if sent is None or delay is None else _sum(sent, delay)
    if due is None and _CELERY_TASK in headers:
        due = _instant(text_of(headers.get(_CELERY_ETA)))
    return due


def at_most(key: DelayKey, level: int, cascade: CascadeTopology) -> timedelta:
    """The delays of the present level, and of the levels below it that the key leads through."""
    return (key.units & (2 << level) - 1) * cascade.unit


def at_least(key: DelayKey, level: int, cascade: CascadeTopology) -> timedelta:
    """The delays of the levels below the present one that the key leads through."""
    return (key.units & (1 << level) - 1) * cascade.unit


def _sum(sent: str, delay: int) -> datetime | None:
    """The due time by both headers. Text exactly as NServiceBus writes it is read ten times faster."""
    if len(sent) == _TIME_SENT_LENGTH and sent[10] + sent[19] == " :" and sent.endswith(" Z") and abs(delay) < _DECADES:
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(f"{sent[:19]}.{sent[20:26]}+00:00") + timedelta(seconds=delay)
    return due_time({TIME_SENT: sent, DELAY_IN_SECONDS: delay})


def _instant(text: str | None) -> datetime | None:
    try:
        instant = parse_time(text or "")
        return instant.astimezone(UTC) if instant.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


_COUNT: Final = b"x-delivery-count"
"""The count that the broker compares with the limit: of returns of a message; since RabbitMQ 4.3, after failures."""


@dataclass(frozen=True, slots=True)
class LevelMessage:
    """A message read from a level queue, not yet acknowledged. `routing_key`: bytes where it is no UTF-8."""

    tag: int
    level: int
    queue: str
    routing_key: str | bytes
    properties: RawProperties
    body: bytes
    redelivered: bool


def reading_limits(source: BrokerCascade) -> Mapping[str, int]:
    """The level queues whose messages may be given back so often only; where no management API tells, by default.

    Raises ConfigurationError for the API of another broker, TransportUnavailableError, TransportError.
    """
    version, management = source.version(), source.management
    if management is not None:
        source.check_same_cluster()

        def take() -> BrokerSnapshot:
            return BrokerSnapshot(queues=management.queues(), policies=tuple(management.policies()))

        limits = limited_queues(version, source.cascade, current_snapshot(version, source.cascade, take(), take))
    else:
        default = delivery_limit(version, None)
        quorum = (queue.name for queue in source.cascade.layout().queues if queue.type == "quorum")
        limits = {} if default is None else dict.fromkeys(quorum, default)
    return {name: limit for name, limit in limits.items() if name in source.queues}


def refuse_dry_run(source: BrokerCascade) -> None:
    """ConfigurationError where a dry run would use up a part of a limit; raises as `reading_limits`."""
    limits = reading_limits(source)
    if limits:
        name, limit = next(iter(limits.items()))
        raise ConfigurationError(
            f"a dry run returns every message that it reads, and {'' if source.management else 'by default '}queue "
            f"{name!r} has a delivery limit of {limit}, so messages would leave it early; {_how_to_lift(source)}"
        )


def refuse_near_delivery_limit(
    source: BrokerCascade, messages: Iterable[LevelMessage], limits: Mapping[str, int]
) -> None:
    """ConfigurationError where one of `messages` has used up half of its queue's limit: a failure gives it back."""
    for message in messages:
        if message.redelivered and message.queue in limits:
            count, limit = _given_back(message), limits[message.queue]
            if count >= max(1, limit // 2):
                raise ConfigurationError(
                    f"a message of {message.queue!r} was read and given back {count} times, and after {limit} RabbitMQ "
                    f"sends it on early; {_how_to_lift(source)}"
                )


def _how_to_lift(source: BrokerCascade) -> str:
    if source.management is None:
        return "pass --management URL, which tells whether a policy lifts this (delaystore cascade create sets it)"
    return f"run delaystore cascade create --cascade {source.name}, which sets the policy that lifts this"


def _given_back(message: LevelMessage) -> int:
    try:
        return integer_of(dict(message.properties.headers).get(_COUNT)) or 0
    except MalformedPropertiesError:
        return 0


_DEAD_LETTER_HEADERS: Final = tuple(name.encode() for name in DEAD_LETTER_HEADERS)
"""RabbitMQ adds them at each level. It may drop a message that has them, as one in a loop."""
_COUNTED_BY_QUEUE: Final = frozenset(name.encode() for name in COUNTED_BY_QUEUE)
_TOLERANCE: Final = timedelta(minutes=1)
"""How much later than due a cascade may deliver before headers and key are said to disagree."""
_WRITTEN: Final = re.compile(rb"S\0\0\0\x1c\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z")
"""TIME_SENT as NServiceBus writes it: a long string of 28 bytes."""
_INTEGER: Final = b"I"
"""The type of a number of 32 bits."""
POISON_REASON: Final = "delaystore.poison-reason"
POISON_QUEUE: Final = "delaystore.poison-queue"
"""The level queue it was read from."""
POISON_ROUTING_KEY: Final = "delaystore.poison-routing-key"
"""The routing key it was read with: its delay and its destination."""
POISON_PROPERTIES: Final = "delaystore.poison-properties"
"""Properties that cannot be read, as they came; with `-size`: how many of the body's first bytes they are."""


class UnmovableError(Exception):
    """A message cannot be moved; the text says why."""


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """A copy to publish. `destination`: the address it is for. `delay`: how long the target keeps it.

    `disagreeing`: by its headers it is due long before its key says.
    """

    copy: Copy
    destination: str
    delay: timedelta
    disagreeing: bool


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans copies. The obstacles: why a destination cannot be reached, or a user's message not sent; None: it can."""

    source: CascadeTopology
    target: CascadeTopology
    due_from: DueFrom
    destination_obstacle: Callable[[str], str | None]
    user_obstacle: Callable[[str], str | None]

    def plan(self, message: LevelMessage, now: datetime) -> PlannedCopy:
        """The copy to publish at `now`; raises UnmovableError."""
        try:
            entries = message.properties.headers
        except MalformedPropertiesError as error:
            raise UnmovableError(f"its properties cannot be read: {error}") from None
        headers = dict(entries)
        key = self._key(message)
        wait = remaining(headers, key, message.level, self.source, self.due_from, now)
        if wait is None:
            raise UnmovableError(
                f"its headers do not say when it is due ({TIME_SENT} and {DELAY_IN_SECONDS}); "
                "use --due-from either, which then reads its routing key"
            )
        try:
            units = self.target.units(wait.delay)
            address = self.target.route(wait.delay, key.address)
        except InvalidMessageError as error:
            raise UnmovableError(str(error)) from None
        self._check_reachable(message.properties, headers, key.address)
        kept = [entry for entry in entries if not left_by_broker(entry.name, redelivered=message.redelivered)]
        dating = not wait.exact or _in_another_way(headers)
        if dating:
            kept = _dated(kept, wait, now)
        properties = _delayed(message.properties, kept, len(kept) != len(entries) or dating, units > 0)
        early = wait.exact and wait.delay + _TOLERANCE < at_least(key, message.level, self.source)
        return PlannedCopy(Copy(address, properties, message.body), key.address, units * self.target.unit, early)

    def _key(self, message: LevelMessage) -> DelayKey:
        text = message.routing_key
        key = self.source.read_key(text) if isinstance(text, str) else None
        if key is None or not key.address:
            raise UnmovableError(f"its routing key {text[:80]!r} is none of this cascade's")
        return key

    def _check_reachable(self, properties: RawProperties, headers: dict[bytes, bytes], address: str) -> None:
        for name in CARBON_COPIES:
            if name in headers:
                raise UnmovableError(f"its header {name.decode()!r} would send copies to other queues once more")
        user = properties.text("user_id")
        reason = (None if user is None else self.user_obstacle(user)) or self.destination_obstacle(address)
        if reason is not None:
            raise UnmovableError(reason)


def poisoned(message: LevelMessage, reason: str, queue: str) -> Copy:
    """A copy of `message` for `queue`, with its own headers and why it is there."""
    key = message.routing_key
    said = [
        TableEntry(POISON_REASON.encode(), text_value(reason)),
        TableEntry(POISON_QUEUE.encode(), text_value(message.queue)),
        TableEntry(POISON_ROUTING_KEY.encode(), text_value(key) if isinstance(key, str) else bytes_value(key)),
    ]
    return copy_with_reason(queue, message.properties, message.body, said, POISON_PROPERTIES)


def left_by_broker(name: bytes, *, redelivered: bool) -> bool:
    """Whether the header `name` is one that the broker added on the way."""
    return name.startswith(_DEAD_LETTER_HEADERS) or (redelivered and name in _COUNTED_BY_QUEUE)


def _dated(entries: list[TableEntry], wait: Remaining, now: datetime) -> list[TableEntry]:
    """`entries` with headers that say when the copy is due, also for NServiceBus' tools."""
    given = dict(entries).get(_TIME_SENT)
    sent = {TIME_SENT: text_of(given)}
    if given is not None and time_sent(sent) is None:
        return entries  # written by another program in its own way, and left so
    written = dated(sent, now + wait.delay, now)
    return with_entries(
        entries,
        TableEntry(_TIME_SENT, text_value(written[TIME_SENT])),
        TableEntry(_DELAY_IN_SECONDS, integer_value(written[DELAY_IN_SECONDS])),
    )


def _in_another_way(headers: dict[bytes, bytes]) -> bool:
    """Whether there are both headers that say when a message is due, and NServiceBus' tools could not read them."""
    sent, delay = headers.get(_TIME_SENT), headers.get(_DELAY_IN_SECONDS)
    if sent is None or delay is None:
        return False
    return delay[:1] != _INTEGER or _WRITTEN.fullmatch(sent) is None


def _delayed(properties: RawProperties, headers: list[TableEntry], changed: bool, waits: bool) -> RawProperties:
    """The copy's properties. An expiration would end its wait early, so a header keeps it."""
    expiration = properties.text("expiration") if waits else None
    if expiration is not None:
        headers = with_entries(headers, TableEntry(EXPIRATION.encode(), text_value(expiration)))
        return properties.changed(headers, without=["expiration"])
    return properties.changed(headers) if changed else properties
