"""Queues as tables: exactly once, where they live in the store's own database."""

from delaystore.transports.sql_queue._transport import SqlQueueTransport, open_sql_queue

__all__ = ["SqlQueueTransport", "open_sql_queue"]
