"""Stores: where delayed messages wait until they are due.

`abc` is the contract of every store and `operable` what operators need of one, with its `records`; their semantics
stand there alone. `shared` has rules that every store keeps the same way, `documents` messages and reports as JSON.
`memory` is the reference that tests compare with, `sql` the store of PostgreSQL, MariaDB, MySQL and SQLite.
May be changed freely: everything but the contracts and records, which other people's stores implement and return.
May import: the ground.
"""

from typing import TYPE_CHECKING

from delaystore.registry import lazily, open_url
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
__getattr__, __dir__ = lazily(
    __name__, dict.fromkeys(("AsyncSqlDelayedMessageStore", "SqlDelayedMessageStore"), "delaystore.stores.sql")
)


def open_store(url: str) -> DelayedMessageStore:
    """Open the store for a URL, by the entry points `delaystore.stores`.

    Args:
        url: Such as `postgresql://user:password@db/app`, `sqlite:///app.db` or `memory://`.

    Returns:
        The store. It connects when it is first used.

    Raises:
        UnknownSchemeError: No store is registered for the URL's scheme.
        ConfigurationError: The URL cannot work.
        MissingDependencyError: The store needs a library that is not installed.

    Example:
        ```python
        store = open_store("sqlite:///app.db")
        ```

    """
    store: DelayedMessageStore = open_url("delaystore.stores", "store", url)
    return store
