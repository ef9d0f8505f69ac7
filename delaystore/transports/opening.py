"""Opening a transport whose SQL queues are in a schema that is given beside its URL."""

from delaystore.transports import Transport, open_transport


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
