"""From what people have to the columns that the format "delaystore" writes.

Each function returns a DataFrame with the columns message_id, destination, due_time, body, headers and properties
(`due_after`: without properties). Nothing is left out silently: unreadable data become a row that the writer
rejects, for the reason in its column `delaystore_unreadable`; its body has the unreadable data.
"""

from delaystore.bulk.spark.pipeline._exports import azure_timeouts, celery_tasks, ravendb_timeouts
from delaystore.bulk.spark.pipeline._tables import due_after, nservicebus_messages, read_nservicebus_table

__all__ = [
    "azure_timeouts",
    "celery_tasks",
    "due_after",
    "nservicebus_messages",
    "ravendb_timeouts",
    "read_nservicebus_table",
]
