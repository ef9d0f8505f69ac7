"""Bodies: given as bytes or text, or made of the columns that are not a message's."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion._faults import Faults
from delaystore.loading.conversion.columns import Column
from delaystore.loading.conversion.encodings import Plain
from delaystore.loading.conversion.objects import braced, of_columns


def given_bodies(index: int, max_bytes: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column body as bytes, checked; text is taken as UTF-8."""
    bodies = batch.column(index).cast(pa.binary())
    faults.add(bodies.is_null(), "body is null")
    return _limited(bodies, max_bytes, faults)


def json_bodies(columns: Sequence[Column], max_bytes: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """A JSON object of these columns as bytes, checked; null is null."""
    values = [batch.column(column.index) for column in columns]
    entries, unfit = of_columns([column.name for column in columns], values, Plain(), nulls=True)
    faults.add(unfit, "body would hold a value that no JSON can")
    return _limited(braced(entries).cast(pa.binary()), max_bytes, faults)


def _limited(bodies: pa.Array, limit: int, faults: Faults) -> pa.Array:
    faults.add(pc.greater(pc.binary_length(bodies), limit), f"body has more than {limit} bytes")
    return bodies
