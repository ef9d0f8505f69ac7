"""The SQL store, with its database floor: `engine`, `urls`, `codec`, `faults`, `errors`, `dialects`, `drivers`.

`store` opens transactions, `bound` is the same store on one connection, `_enlisted` in the caller's transaction.
What differs between databases is asked of `dialects`, one object for each, and between drivers of `drivers`.
May be changed freely: everything but released versions in `migrations/versions`.
May import: the ground, and of `stores` the contracts, `records`, `shared` and `documents`.
"""

from delaystore.stores.sql.async_store import AsyncSqlDelayedMessageStore
from delaystore.stores.sql.setup import leave_delaystore_alone
from delaystore.stores.sql.store import SqlDelayedMessageStore

__all__ = ["AsyncSqlDelayedMessageStore", "SqlDelayedMessageStore", "leave_delaystore_alone", "open_sql_store"]


def open_sql_store(url: str) -> SqlDelayedMessageStore:
    """Open the SQL store at a URL; the entry point of its schemes.

    Args:
        url: A SQLAlchemy URL.

    Returns:
        The store. It connects when it is first used.

    Raises:
        ConfigurationError: The URL cannot work.
        MissingDependencyError: The database's driver is not installed.

    """
    return SqlDelayedMessageStore(url)
