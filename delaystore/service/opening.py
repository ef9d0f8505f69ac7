"""Opening the store and the transport of an endpoint, as its URLs, schema and table say."""

from delaystore.errors import ConfigurationError
from delaystore.stores import DelayedMessageStore, open_store
from delaystore.transports import Transport, open_transport


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


def transport_at(url: str, schema: str | None) -> Transport:
    """The transport, whose SQL queues are in the schema. Raises ConfigurationError. It connects to nothing yet."""
    transport = open_transport(url)
    if schema is None:
        return transport
    from delaystore.transports.sql_queue import SqlQueueTransport

    if not isinstance(transport, SqlQueueTransport):
        return transport
    transport.close()
    return SqlQueueTransport(url, schema=schema)
