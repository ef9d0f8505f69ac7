"""The SQL store: PostgreSQL, MariaDB, MySQL, SQLite."""

from delaystore.stores.sql.async_store import AsyncSqlDelayedMessageStore
from delaystore.stores.sql.setup import leave_delaystore_alone
from delaystore.stores.sql.store import SqlDelayedMessageStore

__all__ = ["AsyncSqlDelayedMessageStore", "SqlDelayedMessageStore", "leave_delaystore_alone", "open_sql_store"]


def open_sql_store(url: str) -> SqlDelayedMessageStore:
    """The SQL store for `url`; the entry point of its schemes. Raises ConfigurationError, MissingDependencyError."""
    return SqlDelayedMessageStore(url)
