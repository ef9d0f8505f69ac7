"""Opening a store whose schema or table is given beside its URL."""

from delaystore.errors import ConfigurationError
from delaystore.stores import DelayedMessageStore, open_store


def store_at(url: str, schema: str | None, table: str | None) -> DelayedMessageStore:
    """The store; raises ConfigurationError, also where it takes no schema or table. It connects to nothing yet."""
    store = open_store(url)
    if schema is None and table is None:
        return store
    from delaystore.stores.sql import SqlDelayedMessageStore

    store.close()
    if not isinstance(store, SqlDelayedMessageStore):
        raise ConfigurationError("a schema and a table go with a SQL store only; leave them out")
    return SqlDelayedMessageStore(url, schema=schema, table=table)
