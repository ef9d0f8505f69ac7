"""Which column of a record is which field of a message."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from delaystore.message import PROPERTY_TYPES
from delaystore.records.delays import MILLISECONDS, Delays
from delaystore.records.due_times import DueTimes
from delaystore.records.nservicebus import Address, as_it_is

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message_id": "its id; without one, a line gets an id made of what it holds",
        "destination": "where it goes",
        "due_time": "when it is due",
        "sent_time": "when it was sent; with delay_ms, in place of due_time",
        "delay_ms": "milliseconds from sent_time to the due time",
        "body": "its body as text (Parquet: or bytes)",
        "body_base64": "its body in base64, in place of body",
        "body_json": "its body as a JSON value, in place of body",
        "headers": "its headers, an object or JSON text",
        "properties": "its AMQP properties, an object or JSON text",
        "endpoint": "the endpoint it belongs to",
        "saga_id": "the saga that waits; with nservicebus",
        **{name: f"the AMQP property {name}" for name in PROPERTY_TYPES},
    }
)
"""What a column can be mapped to."""
CONSTANT: Final = "="
"""What stands before a value for all records, which is given in place of a column's name."""


@dataclass(frozen=True, slots=True)
class RecordMapping:
    """How records become messages.

    `columns`: the column of each field (one of FIELDS): its name, or names joined by dots where columns are nested;
    after `=` a value for all records. `nservicebus`: the headers are NServiceBus', and say the id and the properties;
    `address`: what a destination means then. `delays`: how those of `delay_ms` are read.
    """

    columns: Mapping[str, str]
    due_times: DueTimes
    nservicebus: bool = False
    address: Address = as_it_is
    delays: Delays = MILLISECONDS
