"""Rows of stores that are read in one part."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from sqlalchemy import select

from delaystore.spark._reading.filters import Condition, clauses
from delaystore.spark._tables import SqlTable
from delaystore.sql.errors import translated_errors
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.stores.sql.rows import to_row

ROWS_PER_BATCH: Final = 2000
PAGE: Final = 1000


def read_rows(source: SqlTable, conditions: Sequence[Condition], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` of what fulfils the conditions: by one statement, and so of one instant.

    Raises StoreError.
    """
    wanted = [source.table.c[name] for name in schema.names]
    statement = select(*wanted).where(*clauses(source.table, conditions))
    with translated_errors(), source.connect() as connection:
        result = connection.execution_options(yield_per=ROWS_PER_BATCH).execute(statement)
        for rows in result.partitions():
            columns = zip(*rows, strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_pages(store: ManagedDelayedMessageStore, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` of all that waits in a store that others wrote: page by page, and so not of one instant.

    Raises StoreError.
    """
    after = None
    while True:
        page = store.list(after=after, limit=PAGE)
        if page.messages:
            yield pa.RecordBatch.from_pylist([to_row(message) for message in page.messages], schema)
        if page.next_key is None:
            return
        after = page.next_key
