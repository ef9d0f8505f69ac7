"""Stores that others wrote: page after page of `list`, in one part, and so not of one instant."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from delaystore.message import DelayedMessage
from delaystore.spark.reading.rows import record_batch
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.stores.sql.codec import encode_mapping

PAGE: Final = 1000


def read_pages(store: ManagedDelayedMessageStore, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` of all that waits. Raises StoreError."""
    after = None
    while True:
        page = store.list(after=after, limit=PAGE)
        if page.messages:
            yield record_batch([_row(message, schema.names) for message in page.messages], schema)
        if page.next_key is None:
            return
        after = page.next_key


def _row(message: DelayedMessage, columns: list[str]) -> list[object]:
    values = {
        "message_id": message.message_id,
        "destination": message.destination,
        "due_time": message.due_time,
        "next_attempt": message.attention_time,
        "failure_count": message.failure_count,
        "headers": encode_mapping(message.headers),
        "properties": encode_mapping(message.properties),
        "body": message.body,
    }
    return [values[name] for name in columns]
