"""Where messages wait."""

from typing import TYPE_CHECKING, Any

from delaystore.registry import open_url
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore

if TYPE_CHECKING:
    from delaystore.stores.sql import AsyncSqlDelayedMessageStore, SqlDelayedMessageStore

__all__ = [
    "AsyncSqlDelayedMessageStore",
    "DelayedMessageStore",
    "InMemoryDelayedMessageStore",
    "ManagedDelayedMessageStore",
    "OperableDelayedMessageStore",
    "SqlDelayedMessageStore",
    "open_store",
]


def open_store(url: str) -> DelayedMessageStore:
    """The store for `url`, from the entry points `delaystore.stores`.

    Raises UnknownSchemeError, ConfigurationError, MissingDependencyError.
    """
    store: DelayedMessageStore = open_url("delaystore.stores", "store", url)
    return store


def __getattr__(name: str) -> Any:
    """Import the SQL stores at their first use: SQLAlchemy and Alembic take half a second."""
    if name in ("AsyncSqlDelayedMessageStore", "SqlDelayedMessageStore"):
        from delaystore.stores import sql

        return getattr(sql, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
