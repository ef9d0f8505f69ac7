"""What operations reach: an endpoint's store, its transport, and who acts."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from delaystore.amounts import counted
from delaystore.calls import Call
from delaystore.errors import ConfigurationError, StoreError
from delaystore.operations.changes import Actor, BulkChanges, DueTime, MessageChanges
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import AuditEntry, OperableDelayedMessageStore, Way
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
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

    def note(self, action: str, about: str, count: int, destination: str | None = None) -> None:
        """Note a change of something else than messages, which was made. A note that fails is logged: it is made."""
        actor = self.actor
        try:
            store = self.operable()
            with self.call("noting a change"):
                entry = AuditEntry(
                    at=store.now(),
                    by=actor.by,
                    action=action,
                    about=about,
                    count=count,
                    way=actor.way.value,
                    destination=destination,
                )
                store.note_changes([entry])
        except StoreError as error:
            messages = counted(count, "message")
            logger.error("%s: %s by %s (%s) is done, but not noted: %s", action, about, actor.by, messages, error)
