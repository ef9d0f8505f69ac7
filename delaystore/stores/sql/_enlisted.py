"""A store in somebody else's transaction."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection
from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.sql.errors import translated_errors
from delaystore.stores.operable import AuditEntry
from delaystore.stores.sql._listener import payload_of
from delaystore.stores.sql._parts import StoreParts
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.stores.sql.operating.audit import AuditTrail
from delaystore.stores.sql.targets import Target


class EnlistedSqlStore(BoundSqlStore):
    """The store's interface in the caller's transaction: what it writes takes effect only if that commits.

    The time of the commit is unknown, so each write has the commit wake every dispatcher, whatever the due time; the
    database sends equal notifications only once. `on_end` is called after the end of a transaction that tells of it.
    """

    def __init__(self, parts: StoreParts, target: Target, on_end: Callable[[], None] | None = None) -> None:
        claims = parts.claims(lambda: self.connection, committing=False)
        super().__init__(parts, target.connection, claims)
        self._target = target
        self._on_end = on_end

    @property
    @override
    def connection(self) -> Connection:
        """The transaction's connection of this moment."""
        return self._target.connection

    @override
    def insert(self, message: DelayedMessage) -> None:
        """Insert and notify in one statement; a duplicate leaves the caller's transaction alive."""
        self.written()
        with translated_errors():
            self._parts.insert_enlisted(self.connection, message, payload_of(None))
        self._await_end(message.next_attempt)

    @override
    def _note(self, entries: Sequence[AuditEntry]) -> None:
        """At once: when the caller commits is unknown."""
        AuditTrail(self).note(entries)

    @override
    def _waits_until(self, at: datetime) -> None:
        self._notify(payload_of(None))
        self._await_end(at)

    def _await_end(self, at: datetime) -> None:
        super()._waits_until(at)
        self._target.when_ended(self._ended)

    def _ended(self) -> None:
        self.rolled_back()  # perhaps: then what was fetched must be found again
        self.after_end()
        if self._on_end is not None:
            self._on_end()
