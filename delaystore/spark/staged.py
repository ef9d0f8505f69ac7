"""Messages on their way from Spark to a store: checked, encoded as the store keeps them, in Arrow's memory."""

from typing import Final

import pyarrow as pa

STAGED: Final = pa.schema(
    [
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("destination", pa.string(), nullable=False),
        pa.field("due_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("headers", pa.string()),
        pa.field("properties", pa.string()),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""`headers` and `properties` are text as the SQL store's codec writes it; null: none."""
