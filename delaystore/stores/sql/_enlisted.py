"""The store in the caller's transaction, and whether that is in the same database."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final

from sqlalchemy import URL, Connection, Table
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.stores.records import AuditEntry
from delaystore.stores.sql._listener import payload_of
from delaystore.stores.sql._parts import StoreParts
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.stores.sql.dialects import StoreDialect, store_dialect_of
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.operating.audit import AuditTrail
from delaystore.stores.sql.targets import Target
from delaystore.stores.sql.urls import same_address, url_label


class EnlistedSqlStore(BoundSqlStore):
    """The store's interface in the caller's transaction: its writes take effect only if that commits.

    The time of the commit is unknown, so each write has the commit wake every dispatcher, for any due time; the
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


_FOUND: Final = "delaystore_tables"
"""The key in Connection.info of the addresses and tables that it is known to lead to."""


class SameDatabase:
    """Refuses transactions in other databases than the one of a store's `table`.

    Where the addresses differ, as of a server with two names, it asks both sides which server they lead to.
    """

    def __init__(
        self,
        url: URL,
        table: Table,
        dialect: StoreDialect,
        connect: Callable[[], AbstractContextManager[Connection]],
    ) -> None:
        self._url = url
        self._table = table
        self._dialect = dialect
        self._connect = connect
        self._own: Sequence[Any] | None = None

    def check(self, target: Target) -> None:
        """Raise ConfigurationError where `target` leads to another database."""
        connection = target.connection
        known: set[tuple[URL, str]] = connection.info.setdefault(_FOUND, set())
        place = (self._url, self._table.fullname)
        if place in known:
            return
        if not self._is_here(target, connection):
            raise ConfigurationError(
                f"the enlisted session or connection uses another database than the store, {url_label(self._url)}; "
                "enlist one that uses the store's database"
            )
        known.add(place)

    def _is_here(self, target: Target, connection: Connection) -> bool:
        if type(store_dialect_of(connection)) is not type(self._dialect):
            return False
        if target.address is not None and same_address(self._url, target.address):
            return True
        there = self._dialect.identity(connection, self._table)
        if self._own is None:
            self._own = self._dialect.identity_of(self._url)
        return (
            there == self._own or there == self._identity()
        )  # again: a server has another identity once it has restarted

    def _identity(self) -> Sequence[Any]:
        with self._connect() as connection:
            self._own = self._dialect.identity(connection, self._table)
        return self._own
