"""What is to be published in place of a waiting message."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delaystore.errors import InvalidMessageError
from delaystore.headers import EXPIRATION
from delaystore.transports.rabbitmq.moving.due import Remaining, at_least, remaining
from delaystore.transports.rabbitmq.moving.due_by import DueBy
from delaystore.transports.rabbitmq.moving.messages import Copy, WaitingMessage
from delaystore.transports.rabbitmq.moving.raw import MalformedPropertiesError, RawProperties
from delaystore.transports.rabbitmq.moving.tables import Entry, integer_value, text_of, text_value
from delaystore.transports.rabbitmq.native.headers import DELAY_IN_SECONDS, TIME_SENT, time_sent, time_sent_text
from delaystore.transports.rabbitmq.topology.cascade import SECOND, CascadeTopology, DelayKey

_DEAD_LETTER_HEADERS: Final = (b"x-death", b"x-first-death-", b"x-last-death-")
"""Left by the levels passed; a message that has them may be dropped as one that goes round in circles."""
_COUNTED_BY_QUEUE: Final = frozenset({b"x-delivery-count", b"x-acquired-count"})
"""Added by a quorum queue to a message it delivers again."""
_CARBON_COPIES: Final = (b"CC", b"BCC")
_TOLERANCE: Final = timedelta(minutes=1)
"""How much later than due a cascade may deliver before headers and key are said to disagree."""


class UnmovableError(Exception):
    """A message that cannot be moved; the text says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A copy to publish. `destination`: the address it is for. `delay`: how long the target keeps it.

    `disagreeing`: by its headers it is due long before its key says.
    """

    copy: Copy
    destination: str
    delay: timedelta
    disagreeing: bool


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans copies. `obstacle` tells why a destination cannot be reached, or a user's message not be sent."""

    source: CascadeTopology
    target: CascadeTopology
    due_by: DueBy
    destination_obstacle: Callable[[str], str | None]
    user_obstacle: Callable[[str], str | None]

    def plan(self, message: WaitingMessage, now: datetime) -> Plan:
        """The copy to publish at `now`; raises UnmovableError."""
        try:
            entries = message.properties.headers
        except MalformedPropertiesError as error:
            raise UnmovableError(f"its properties cannot be read: {error}") from None
        headers = dict(entries)
        key = self._key(message)
        wait = remaining(headers, key, message.level, self.source, self.due_by, now)
        if wait is None:
            raise UnmovableError(
                f"its headers do not say when it is due ({TIME_SENT} and {DELAY_IN_SECONDS}); "
                "--due-by either goes by its routing key then"
            )
        try:
            units = self.target.units(wait.delay)
            address = self.target.route(wait.delay, key.address)
        except InvalidMessageError as error:
            raise UnmovableError(str(error)) from None
        self._check_reachable(message.properties, headers, key.address)
        kept = [entry for entry in entries if not left_by_broker(entry.name, redelivered=message.redelivered)]
        if not wait.exact:
            kept = _dated(kept, wait, now)
        properties = _delayed(message.properties, kept, len(kept) != len(entries) or not wait.exact, units > 0)
        early = wait.exact and wait.delay + _TOLERANCE < at_least(key, message.level, self.source)
        return Plan(Copy(address, properties, message.body), key.address, units * self.target.unit, early)

    def _key(self, message: WaitingMessage) -> DelayKey:
        text = message.routing_key
        key = self.source.read_key(text) if isinstance(text, str) else None
        if key is None or not key.address:
            raise UnmovableError(f"its routing key {text[:80]!r} is none of this cascade's")
        return key

    def _check_reachable(self, properties: RawProperties, headers: dict[bytes, bytes], address: str) -> None:
        for name in _CARBON_COPIES:
            if name in headers:
                raise UnmovableError(f"its header {name.decode()!r} would send copies elsewhere once more")
        user = properties.text("user_id")
        reason = (None if user is None else self.user_obstacle(user)) or self.destination_obstacle(address)
        if reason is not None:
            raise UnmovableError(reason)


def left_by_broker(name: bytes, *, redelivered: bool) -> bool:
    """Whether a header was added on the way, and not by the sender."""
    return name.startswith(_DEAD_LETTER_HEADERS) or (redelivered and name in _COUNTED_BY_QUEUE)


def with_entries(entries: list[Entry], *added: Entry) -> list[Entry]:
    """`entries`, those of the same names replaced where they are."""
    values = dict(added)
    replaced = [Entry(name, values.pop(name, value)) for name, value in entries]
    return replaced + [Entry(name, value) for name, value in values.items()]


def _dated(entries: list[Entry], wait: Remaining, now: datetime) -> list[Entry]:
    """With headers that say when the copy is due, so that it can be moved again exactly."""
    given = dict(entries).get(TIME_SENT.encode())
    sent = time_sent({TIME_SENT: text_of(given)})
    if sent is None:
        if given is not None:
            return entries  # another program's way to write it, which stays
        entries = with_entries(entries, Entry(TIME_SENT.encode(), text_value(time_sent_text(now))))
        sent = now
    delay = max(0, math.ceil((now + wait.delay - sent) / SECOND))
    return with_entries(entries, Entry(DELAY_IN_SECONDS.encode(), integer_value(delay)))


def _delayed(properties: RawProperties, headers: list[Entry], changed: bool, waits: bool) -> RawProperties:
    """The copy's properties. An expiration would end its wait early, and waits in a header."""
    expiration = properties.text("expiration") if waits else None
    if expiration is not None:
        headers = with_entries(headers, Entry(EXPIRATION.encode(), text_value(expiration)))
        return properties.changed(headers, without=["expiration"])
    return properties.changed(headers) if changed else properties
