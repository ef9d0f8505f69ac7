"""Bodies: given as bytes, as text or in base64, or made of the columns that are not a message's."""

from base64 import b64decode
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion._faults import Faults, Unfit, by_value
from delaystore.loading.conversion._texts import readable
from delaystore.loading.conversion.columns import Column
from delaystore.loading.conversion.encodings import Plain
from delaystore.loading.conversion.objects import braced, of_columns


def given_bodies(index: int, max_bytes: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column body as bytes, checked; text is taken as UTF-8."""
    bodies = batch.column(index).cast(pa.binary())
    faults.add(bodies.is_null(), "body is null")
    return _limited(bodies, max_bytes, faults)


def encoded_bodies(index: int, plain: int | None, max_bytes: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column body_base64 as bytes, checked. `plain`: the column of the other rows' bodies; None: there is none."""
    bodies = by_value(readable(batch.column(index), "body_base64", faults), _decoded, pa.binary(), faults)
    if plain is not None:
        others = batch.column(plain).cast(pa.binary())
        faults.add(pc.and_(others.is_valid(), bodies.is_valid()), "body and body_base64 are both there")
        bodies = pc.coalesce(others, bodies)
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


def _decoded(text: str) -> bytes:
    try:
        return b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise Unfit("body_base64 is no base64") from None
