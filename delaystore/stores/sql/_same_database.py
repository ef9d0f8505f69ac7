"""Whether a transaction is one in the store's database."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from sqlalchemy import URL, Connection, Table

from delaystore.errors import ConfigurationError
from delaystore.sql.dialects import StoreDialect, store_dialect_of
from delaystore.sql.urls import same_address, url_label
from delaystore.stores.sql.targets import Target

_FOUND: Final = "delaystore_tables"
"""The key in Connection.info of the addresses and tables that it is known to lead to."""


class SameDatabase:
    """Refuses transactions in other databases than that of one store's `table`.

    Where the addresses differ, as those of a server with two names do, both sides are asked what they lead to.
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
                f"what was enlisted leads to another database than the store's, {url_label(self._url)}; "
                "open both at the same one, for one transaction has to span both"
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
        return there == self._own or there == self._ask()  # again: a server has another identity once it has restarted

    def _ask(self) -> Sequence[Any]:
        with self._connect() as connection:
            self._own = self._dialect.identity(connection, self._table)
        return self._own
