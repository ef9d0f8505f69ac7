"""Rows of texts, of files that know no types."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa

from delaystore.loading.conversion.columns import UNREADABLE

BATCH: Final = 10_000
"""Rows of a batch."""
BODY: Final = "body"


class TextRow(NamedTuple):
    """A row. `raw`: the line, if it cannot be read, and `why`; None: it could."""

    values: Sequence[str | None]
    raw: str | None = None
    why: str | None = None


def batches_of(rows: Iterator[TextRow], indices: Sequence[int], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The values at these indices under these names, and why a row was not readable; its line then is its body."""
    while chunk := list(islice(rows, BATCH)):
        columns = [
            [row.raw if row.raw is not None and name.lower() == BODY else row.values[index] for row in chunk]
            for index, name in zip(indices, names, strict=True)
        ]
        arrays = [pa.array(column, pa.string()) for column in (*columns, [row.why for row in chunk])]
        yield pa.RecordBatch.from_arrays(arrays, names=[*names, UNREADABLE])
