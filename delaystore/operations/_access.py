"""What operations reach: an endpoint's store, its transport, and who acts."""

import getpass
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from delaystore.amounts import counted
from delaystore.calls import Call
from delaystore.errors import ConfigurationError, StoreError
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import AuditEntry, OperableDelayedMessageStore
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.operations")


class DueTime(Protocol):
    """What `delay` and `at` say, by the store's clock."""

    def __call__(self, delay: timedelta | float | None, at: datetime | None, /) -> datetime:
        """The due time; raises InvalidMessageError unless exactly one is given, and can be."""
        ...


def whoever_runs_this() -> str:
    """`user@host`, of this process."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in a container
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An endpoint as operations reach it.

    `transport` None: there is none. `prepare` sets up the store where this process is to do that. `wake_up` wakes this
    process's dispatcher for a due time; None: for what may be due now. `call`: a call to the store for a purpose, which
    is ended when it takes too long.
    """

    endpoint: str
    store: DelayedMessageStore
    transport: Transport | None
    settings: DelayedDeliverySettings
    prepare: Callable[[], None]
    wake_up: Callable[[datetime | None], None]
    call: Callable[[str], Call]
    due_time: DueTime
    by: str = field(default_factory=whoever_runs_this)

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

    def note(self, action: str, about: str, count: int) -> None:
        """Note a change that was made. Where the store does not take the note, the log has it: the change is made."""
        self.note_all([Change(self.by, action, about, count)])

    def note_all(self, changes: Sequence["Change"]) -> None:
        """As `note`, of several, by whom they say, in one transaction."""
        if not changes:
            return
        try:
            store = self.operable()
            with self.call("noting a change"):
                now = store.now()
                store.note_changes([AuditEntry(at=now, **asdict(change)) for change in changes])
        except StoreError as error:
            for change in changes:
                messages = counted(change.count, "message")
                logger.error(
                    "%s: %s by %s (%s) is done, but not noted: %s",
                    change.action, change.about, change.by, messages, error,
                )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was made, of `count` messages. `action`: one word; `about`: what, for people."""

    by: str
    action: str
    about: str
    count: int
