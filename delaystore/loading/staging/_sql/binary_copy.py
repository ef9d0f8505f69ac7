"""Arrow's memory as PostgreSQL's binary COPY, without a Python object for each value."""

import sys
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.staging._sql.tables import ATTEMPT
from delaystore.sql.columns import MESSAGE_KEY, NAMES, completed

COLUMNS: Final = (ATTEMPT, *NAMES, MESSAGE_KEY)
"""The columns of the stream, in its order."""
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_LENGTH_8: Final = b"\0\0\0\x08"
_LENGTH_4: Final = b"\0\0\0\x04"
_NULL_LENGTH: Final = -1
_EPOCH: Final = (datetime(2000, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000
"""PostgreSQL counts microseconds from 2000, Arrow from 1970."""
_PIECE: Final = 2**17
"""Bytes given to the driver at once; it would cut larger pieces into such."""
_LARGE: Final = 2**30
"""Bytes from which offsets of 32 bits might not suffice."""


def copy_stream(rows: pa.RecordBatch, attempt: int) -> Iterator[memoryview]:
    """The whole stream for rows of the schema STAGED, in pieces."""
    yield memoryview(_SIGNATURE)
    if rows.num_rows:
        data = memoryview(_joined(rows, attempt))
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
    yield memoryview(_TRAILER)


def _joined(rows: pa.RecordBatch, attempt: int) -> pa.Buffer:
    """All rows' bytes: the value buffer of an array whose values are the rows."""
    kind = pa.large_binary() if rows.nbytes > _LARGE else pa.binary()
    row_start = len(COLUMNS).to_bytes(2) + _LENGTH_8 + attempt.to_bytes(8, signed=True)
    parts: list[Any] = [row_start]
    sent = {name: encoded(rows.column(name)) for name in rows.schema.names}
    for field in completed(sent, lambda number: [_LENGTH_4 + number.to_bytes(4)]):
        parts += field
    parts += sent[MESSAGE_KEY]
    values = [pa.scalar(part, kind) if isinstance(part, bytes) else part.cast(kind) for part in parts]
    joined = pc.binary_join_element_wise(*values, pa.scalar(b"", kind))
    _, offsets, data = joined.buffers()
    width = 8 if kind == pa.large_binary() else 4
    last = offsets.slice(rows.num_rows * width, width)
    return data.slice(0, int.from_bytes(last.to_pybytes(), sys.byteorder))


def encoded(column: pa.Array) -> Sequence[Any]:
    """A column of times, numbers, texts or bytes: its lengths, and its values. A null has a length of its own."""
    if pa.types.is_timestamp(column.type):
        return _LENGTH_8, _swapped(pc.subtract(column.cast(pa.int64()), _EPOCH), "q")
    if pa.types.is_integer(column.type):
        return _LENGTH_4, _swapped(column, "i")
    lengths = pc.binary_length(column)
    values = column.cast(pa.binary())
    if column.null_count:
        lengths, values = lengths.fill_null(_NULL_LENGTH), values.fill_null(b"")
    return _swapped(lengths.cast(pa.int32()), "i"), values


def _swapped(numbers: pa.Array, code: str) -> pa.Array:
    """Numbers of 4 ("i") or 8 ("q") bytes as an array of their bytes, the most significant first."""
    values = array(code)
    width = values.itemsize
    raw = memoryview(numbers.buffers()[1])[numbers.offset * width : (numbers.offset + len(numbers)) * width]
    values.frombytes(raw)
    if sys.byteorder == "little":
        values.byteswap()
    return pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(values)])
