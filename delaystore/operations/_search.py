"""An endpoint as operations reach it, and all messages that match as chunks."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from delaystore.calls import Call
from delaystore.errors import ConfigurationError, InvalidMessageError, StoreError
from delaystore.filters import MessageFilter, Shift
from delaystore.message import DelayedMessage, Position, unmarked, utc
from delaystore.operations.changes import Actor, DueTime, MessageChanges
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import documents
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import AuditEntry, Matching
from delaystore.text import counted
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAccess:
    """An endpoint as operations reach it.

    Attributes:
        endpoint: Its name.
        store: Its store.
        transport: Its transport; None: there is none.
        settings: Its settings.
        prepare: Sets up the store where this process is to do that.
        wake_up: Wakes this process's dispatcher for a due time; None: for messages that may be due now.
        call: A call to the store for a purpose, which is ended when it takes too long.
        due_time: The time of `delay` and `at`.
        actor: In whose name and by which way changes are made, and whether they are noted.

    """

    endpoint: str
    store: DelayedMessageStore
    transport: Transport | None
    settings: DelayedDeliverySettings
    prepare: Callable[[], None]
    wake_up: Callable[[datetime | None], None]
    call: Callable[[str], Call]
    due_time: DueTime
    actor: Actor

    def operable(self) -> OperableDelayedMessageStore:
        """The store, set up; raises ConfigurationError where it offers no operations.

        Where its tables are of an earlier release, its methods raise StoreSetupError.
        """
        if not isinstance(self.store, OperableDelayedMessageStore):
            raise ConfigurationError(
                f"{type(self.store).__name__} cannot be searched, paused or changed by filter; "
                "use an OperableDelayedMessageStore, such as a SQL store"
            )
        self.prepare()
        return self.store

    def in_steps(self, purpose: str, step: Callable[[], int], listener: "CountListener | None") -> int:
        """Take steps until one changes no message.

        Args:
            purpose: The purpose of each step, for the log.
            step: Returns how many messages it has changed.
            listener: Called after each step with how many messages all of them have changed.

        Returns:
            That number in the end.

        """
        total = 0
        while True:
            with self.call(purpose):
                changed = step()
            if not changed:
                return total
            total += changed
            if listener is not None:
                listener(total)

    def show_parked(self, store: OperableDelayedMessageStore, listener: "CountListener | None") -> int:
        """Show parked messages after a resume, and wake dispatchers; returns how many there were."""
        shown = self.in_steps("showing parked messages", store.unpark, listener)
        self.wake_up(None)
        return shown

    @property
    def messages(self) -> MessageChanges:
        """Changes of single messages."""
        return MessageChanges(self.operable, self.actor, self.due_time, self.call, self.wake_up)

    def note(self, action: str, about: str, count: int) -> None:
        """Note a change of the error queue, or of something else outside the store, after it was made.

        There is no transaction of the change that could hold the note. A note that fails is logged, since the change is
        made; a note before the change would be believed where the change failed.

        Args:
            action: The change, in one word.
            about: The changed messages or destination, for people.
            count: To how many messages.

        """
        actor = self.actor
        if not actor.is_noted:
            return
        try:
            store = self.operable()
            with self.call("noting a change"):
                now, way = store.now(), actor.way.value
                store.note_changes([AuditEntry(at=now, by=actor.by, action=action, about=about, count=count, way=way)])
        except StoreError as error:
            messages = counted(count, "message")
            logger.error(
                "%s: %s by %s (%s) is done, but missing in the audit trail: %s",
                action,
                about,
                actor.by,
                messages,
                error,
            )


CountListener = Callable[[int], object]
"""Called as work goes on with how many messages are done. Its exception ends the work, which can be done again."""


_CHUNK: Final = 1_000
"""Messages that are in memory together while all that match are read."""
_MAY_MOVE: Final = timedelta(minutes=10)
"""Messages that are due within this time may be tried, and so shown again later, while others are still read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Which messages an operation would change; nothing is changed.

    Attributes:
        wanted: The filter.
        found: Messages that match now; claimed messages are among them. For a reschedule it has their due times.
        sample: The first of them.
        new: Their new due time, or the shift of each; None: they get no other due time.

    """

    wanted: MessageFilter
    found: Matching
    sample: Sequence[DelayedMessage]
    new: datetime | Shift | None = None

    @property
    def count(self) -> int:
        """How many messages match."""
        return self.found.count

    @property
    def complete(self) -> bool:
        """Whether all messages were counted; False: more may match, and the due times may lie further apart."""
        return self.found.next_key is None

    def document(self) -> dict[str, Any]:
        """The preview as JSON; of a reschedule with the due times before and after it."""
        sample = [documents.summary(message) for message in self.sample]
        document: dict[str, Any] = {"count": self.count, "complete": self.complete}
        if self.new is not None:
            for name, due_time in (("first_due", self.found.first_due), ("last_due", self.found.last_due)):
                document |= {name: documents.instant(due_time), f"new_{name}": documents.instant(self.moved(due_time))}
            for each, message in zip(sample, self.sample, strict=True):
                each["new_due_time"] = documents.instant(self.moved(unmarked(message)))
        return {**document, "sample": sample}

    def moved(self, due_time: datetime | None) -> datetime | None:
        """The new due time of a message that is due at `due_time`; None: there is none, or it is out of range."""
        if due_time is None or self.new is None:
            return None
        return self.new.moved(due_time) if isinstance(self.new, Shift) else self.new


class Export:
    """All messages that match, a chunk at a time, in the order of positions.

    No message comes twice because a dispatcher tried it meanwhile; one that is rescheduled or resumed meanwhile may
    come twice, or not at all.

    Args:
        access: The endpoint.
        wanted: The filter.
        after: The position behind which to begin; None: from the first message.

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
        with self._access.call("searching messages"):
            page = self._access.operable().search(self._wanted, after=self.after, limit=_CHUNK)
        self.after, self._ended = page.next_key, page.next_key is None
        fresh = [message for message in page.messages if message.message_id not in self._movable]
        soon = self._access.store.now() + _MAY_MOVE
        self._movable.update(message.message_id for message in fresh if message.next_attempt <= soon)
        return fresh


def check_pause_end(until: datetime | None, now: datetime) -> None:
    """Raise InvalidMessageError for an end of a pause that is not later than `now`, or has no time zone."""
    if until is not None and utc(until, "until") <= now:
        raise InvalidMessageError(f"until {until.isoformat()} is in the past; give a later time")
