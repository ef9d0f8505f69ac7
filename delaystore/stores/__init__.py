"""Where messages wait."""

from typing import TYPE_CHECKING, Any

from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.registry import open_store

if TYPE_CHECKING:
    from delaystore.stores.sql import SqlDelayedMessageStore

__all__ = [
    "DelayedMessageStore",
    "InMemoryDelayedMessageStore",
    "ManagedDelayedMessageStore",
    "SqlDelayedMessageStore",
    "open_store",
]


def __getattr__(name: str) -> Any:
    """Import the SQL store when it is asked for: SQLAlchemy and Alembic take half a second."""
    if name == "SqlDelayedMessageStore":
        from delaystore.stores.sql import SqlDelayedMessageStore

        return SqlDelayedMessageStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
