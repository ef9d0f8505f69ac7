"""Search, preview, export and pause of waiting messages, by what an endpoint can reach."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from delaystore.calls import Call
from delaystore.errors import ConfigurationError, InvalidMessageError, StoreError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, Position, check_destination, utc
from delaystore.operations.changes import Actor, BulkChanges, DueTime, MessageChanges
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore, Page
from delaystore.stores.operable import AuditEntry, ChangeAction, OperableDelayedMessageStore, Way
from delaystore.text import counted
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAccess:
    """An endpoint as operations reach it.

    `transport` None: there is none. `prepare` sets up the store where this process is to do that. `wake_up` wakes this
    process's dispatcher for a due time; None: for what may be due now. `call`: a call to the store for a purpose, which
    is ended when it takes too long. `actor`: in whose name changes are made and noted.
    """

    endpoint: str
    store: DelayedMessageStore
    transport: Transport | None
    settings: DelayedDeliverySettings
    prepare: Callable[[], None]
    wake_up: Callable[[datetime | None], None]
    call: Callable[[str], Call]
    due_time: DueTime
    actor: Actor = field(default_factory=lambda: Actor(way=Way.OPERATIONS, is_noted=True))

    def operable(self) -> OperableDelayedMessageStore:
        """The store, set up; raises ConfigurationError where it offers no operations.

        Where its tables are of an earlier release, its methods raise StoreSetupError.
        """
        if not isinstance(self.store, OperableDelayedMessageStore):
            raise ConfigurationError(
                f"{type(self.store).__name__} cannot be searched, paused or changed by filter; "
                "that takes an OperableDelayedMessageStore, such as a SQL store"
            )
        self.prepare()
        return self.store

    @property
    def messages(self) -> MessageChanges:
        """Changes of single messages."""
        return MessageChanges(self.operable, self.actor, self.due_time, self.call, self.wake_up)

    @property
    def bulk(self) -> BulkChanges:
        """Changes of all messages that match a filter."""
        return BulkChanges(self.operable, self.actor, self.call, self.wake_up)

    def note(self, action: str, about: str, count: int) -> None:
        """Note a change of the error queue, or of something else outside the store, after it was made.

        There is no transaction of the change that could hold the note. A note that fails is logged, since the change is
        made; a note before the change would be believed where the change failed.
        """
        actor = self.actor
        try:
            store = self.operable()
            with self.call("noting a change"):
                now, way = store.now(), actor.way.value
                store.note_changes([AuditEntry(at=now, by=actor.by, action=action, about=about, count=count, way=way)])
        except StoreError as error:
            messages = counted(count, "message")
            logger.error("%s: %s by %s (%s) is done, but not noted: %s", action, about, actor.by, messages, error)


CountListener = Callable[[int], object]
"""Called as work goes on with how many messages are done. What it raises ends the work, which can be done again."""


def pause(access: EndpointAccess, destination: str, until: datetime | None, listener: CountListener | None) -> int:
    """Pause a destination and park its due messages; returns how many messages were parked."""
    check_destination(destination)
    store = access.operable()
    with access.call("pausing a destination"):
        now = store.now()
        if until is not None and utc(until, "until") <= now:
            raise InvalidMessageError(f"until {until.isoformat()} is over already; give a time to come")
        store.pause(destination, by=access.actor.by, until=until, change=access.actor.change(ChangeAction.PAUSE))
    return _in_steps(access, "parking messages", lambda: store.park(now), listener)


def resume(access: EndpointAccess, destination: str, listener: CountListener | None) -> int:
    """Resume a destination and show what is parked for it; returns how many messages were."""
    check_destination(destination)
    store = access.operable()
    with access.call("resuming a destination"):
        store.resume(destination, by=access.actor.by, change=access.actor.change(ChangeAction.RESUME))
    shown = _in_steps(access, "showing parked messages", store.unpark, listener)
    access.wake_up(None)
    return shown


def limit_rate(access: EndpointAccess, destination: str, max_rate: float | None) -> None:
    """Limit a destination to so many messages a second, where the store takes that; None: no limit any more."""
    check_destination(destination)
    store = access.operable()
    with access.call("limiting a destination"):
        store.limit_rate(destination, max_rate, by=access.actor.by, change=access.actor.change(ChangeAction.LIMIT))


def _in_steps(access: EndpointAccess, purpose: str, step: Callable[[], int], listener: CountListener | None) -> int:
    """Take steps until one changes no message; returns how many messages all of them have changed."""
    total = 0
    while True:
        with access.call(purpose):
            changed = step()
        if not changed:
            return total
        total += changed
        if listener is not None:
            listener(total)


_CHUNK: Final = 1_000
"""Messages that are in memory together while all that match are read."""
_MAY_MOVE: Final = timedelta(minutes=10)
"""Messages that are due within this time may be tried, and so shown again later, while others are still read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an operation would be about; nothing is changed.

    `count`: the messages that match now; what dispatchers have is among them. `sample`: the first of them. `complete`
    False: counting was ended, and more may match.
    """

    wanted: MessageFilter
    count: int
    sample: Sequence[DelayedMessage]
    complete: bool = True


def search(access: EndpointAccess, wanted: MessageFilter, after: Position | None, limit: int) -> Page:
    """A page of what matches."""
    store = access.operable()
    with access.call("searching messages"):
        return store.search(wanted, after=after, limit=limit)


def preview(
    access: EndpointAccess, wanted: MessageFilter, sample: int, at_most: int | None, listener: CountListener | None
) -> Preview:
    """Count what matches, page by page, and show the first of them."""
    store = access.operable()
    found: list[DelayedMessage] = []
    count, after = 0, None
    while True:
        if len(found) < sample:
            page = search(access, wanted, after, sample - len(found))
            found += page.messages
            matched, after = len(page.messages), page.next_key
        else:
            with access.call("counting messages"):
                matched, after = store.count_matching(wanted, after=after)
        count += matched
        if listener is not None:
            listener(count)
        if after is None or (at_most is not None and count >= at_most):
            return Preview(wanted=wanted, count=count, sample=found, complete=after is None)


class Export:
    """All messages that match, a chunk at a time, in the order of positions behind `after`.

    No message comes twice because a dispatcher tried it meanwhile; one that is rescheduled or resumed meanwhile may
    come twice, or not at all.
    """

    def __init__(self, access: EndpointAccess, wanted: MessageFilter, after: Position | None) -> None:
        self._access = access
        self._wanted = wanted
        self._ended = False
        self._movable: set[str] = set()
        self.after = after
        """Where the next chunk begins; None: at the beginning, or, after the last one, there is none."""

    def next(self) -> Sequence[DelayedMessage] | None:
        """The next chunk, perhaps an empty one; None: that was all."""
        if self._ended:
            return None
        page = search(self._access, self._wanted, self.after, _CHUNK)
        self.after, self._ended = page.next_key, page.next_key is None
        fresh = [message for message in page.messages if message.message_id not in self._movable]
        soon = self._access.store.now() + _MAY_MOVE
        self._movable.update(message.message_id for message in fresh if message.next_attempt <= soon)
        return fresh
