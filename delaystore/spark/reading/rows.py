"""MariaDB, MySQL and SQLite: rows of one statement, and so of one instant, in one part."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import select

from delaystore.spark.reading.filters import Condition, clauses
from delaystore.spark.reading.stores import SqlTable
from delaystore.stores.sql.translation import translated_errors

ROWS_PER_BATCH: Final = 2000


def read_rows(source: SqlTable, conditions: Sequence[Condition], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` of what fulfils the conditions. Raises StoreError."""
    wanted = [source.table.c[name] for name in schema.names]
    statement = select(*wanted).where(*clauses(source.table, conditions))
    with translated_errors(), source.connect() as connection:
        result = connection.execution_options(yield_per=ROWS_PER_BATCH).execute(statement)
        for rows in result.partitions():
            yield record_batch(rows, schema)


def record_batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows, in the order of the schema's columns."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
