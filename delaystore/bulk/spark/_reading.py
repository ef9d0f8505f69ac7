"""The reader: Spark's planning worker asks it for parts, its tasks for the rows in them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from sqlalchemy import select

from delaystore.bulk.columns import MESSAGES
from delaystore.bulk.options import ReadOptions
from delaystore.bulk.spark._driver_client import DriverClient, reader_name
from delaystore.bulk.spark._tables import Condition, SqlTable, clauses, condition_of, open_readable, open_table
from delaystore.errors import ConfigurationError, StoreError
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.rows import to_row

# The columns that a read returns.

SCHEMA: Final = from_arrow_schema(MESSAGES)
"""`headers` and `properties` are JSON objects, for `from_json` or `get_json_object`; null: none.

Values that JSON has no type for are objects with one key, such as {"$bytes": "AP8="} or {"$datetime": "2026-..."}.
"""


def check_columns(schema: StructType) -> Sequence[str]:
    """The names in `schema`, if they are ours with our types: a user's own schema reads just these columns.

    Raises ConfigurationError.
    """
    known = {field.name: field.dataType for field in SCHEMA.fields}
    for field in schema.fields:
        if field.name not in known:
            raise ConfigurationError(f"there is no column {field.name!r}; known are {', '.join(known)}")
        if field.dataType != known[field.name]:
            expected, given = known[field.name].simpleString(), field.dataType.simpleString()
            raise ConfigurationError(f"the column {field.name} is of type {expected}, not {given}")
    return schema.fieldNames()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for `schema`."""
    return pa.schema([MESSAGES.field(field.name).with_nullable(field.nullable) for field in schema.fields])


# Rows of stores that are read in one part.

ROWS_PER_BATCH: Final = 2000
PAGE: Final = 1000


def read_rows(source: SqlTable, conditions: Sequence[Condition], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` of what fulfils the conditions: by one statement, and so of one instant.

    Raises StoreError.
    """
    with translated_errors(), source.connect() as connection:
        statement = select(*source.wanted(schema.names, connection)).where(*clauses(source.table, conditions))
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


# The reader: Spark's planning worker asks it for parts, its tasks for what is in them.

MOST_BY_DEFAULT: Final = 64
"""Parts, unless the user names a number."""
ALONE: Final = "delaystore read"
"""The name of a connection that reads from no shared snapshot."""


@dataclass(frozen=True)
class ReadPart(InputPartition):
    """The rows of a statement on PostgreSQL, as of a snapshot (None: as of when it is read)."""

    statement: str
    snapshot: str | None

    def __repr__(self) -> str:
        return f"ReadPart(snapshot={self.snapshot!r})"


class DelaystoreReader(DataSourceReader):
    """Reads waiting messages, claimed by a dispatcher or not, as of one instant.

    PostgreSQL: in several parts, which share a snapshot. The driver service holds it until Spark has run no job for a
    minute (a stream's jobs do not count, unless they are reading), for an hour at most. That long the database keeps
    the rows that are deleted meanwhile, so reading for long makes its files grow. MariaDB, MySQL and SQLite have no
    snapshot to share: one part. Other stores: one part, page by page, and so not of one instant.

    Raises ConfigurationError for columns that are not ours.
    """

    def __init__(self, schema: StructType, options: ReadOptions, driver: DriverClient | None) -> None:
        self._columns = check_columns(schema)
        self._schema, self._options, self._driver = schema, options, driver
        self._conditions: list[Condition] = []

    def partitions(self) -> list[InputPartition]:
        """The parts that the tasks are to read; connects to the store. Raises StoreError, ConfigurationError."""
        source = open_readable(self._options)
        if isinstance(source, SqlTable) and source.is_postgresql:
            return list(self._parts(source))
        if (self._options.partitions or 1) > 1:
            raise ConfigurationError("only PostgreSQL is read in several partitions; leave the option partitions out")
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One part's messages. Raises StoreError; one that says to load() again if the snapshot has gone."""
        wanted = arrow_schema(self._schema)
        if isinstance(partition, ReadPart):
            return self._part(partition, wanted)
        source = open_readable(self._options)
        if isinstance(source, SqlTable):
            return read_rows(source, self._conditions, wanted)
        return read_pages(source, wanted)

    def _part(self, part: ReadPart, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        from delaystore.bulk.spark._postgresql import SnapshotGoneError  # psycopg is for those who need it

        try:
            yield from self._batches(part, wanted)
        except SnapshotGoneError:
            yield from self._batches(replace(part, snapshot=self._successor(part.snapshot)), wanted)

    def _batches(self, part: ReadPart, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        from delaystore.bulk.spark._postgresql import read_batches  # psycopg is for those who need it

        name = ALONE if part.snapshot is None else reader_name(part.snapshot)
        return read_batches(open_table(self._options).engine, part.statement, wanted, part.snapshot, name)

    def _successor(self, name: str | None) -> str:
        """The snapshot to read from in place of that one; the driver service cannot be asked from another computer."""
        successor = None
        if self._driver is not None and name is not None:
            with suppress(ConfigurationError):
                successor = self._driver.successor(name, self._options)
        if successor is None or successor == name:
            raise StoreError(
                "the snapshot that this DataFrame was planned with has been released, as it is after a minute without "
                "jobs, or an hour; load() the DataFrame again"
            )
        return successor

    def _parts(self, source: SqlTable) -> Iterable[ReadPart]:
        if self._driver is None and (self._options.partitions or 1) > 1:
            raise ConfigurationError(
                "reading in several partitions needs the driver service, which register(spark) starts, though not for "
                "a session of Spark Connect, whose driver is elsewhere; there, leave the option partitions out"
            )
        from delaystore.bulk.spark._postgresql import PostgreSqlPlan  # psycopg is for those who need it

        with PostgreSqlPlan(source, self._columns, self._conditions) as plan:
            boundaries: Sequence[int] = ()
            if self._driver is not None and self._options.partitions != 1:
                extent = plan.extent()
                most = min(self._driver.parallelism(), MOST_BY_DEFAULT)
                boundaries = extent.boundaries(self._options.partitions or extent.part_count(most))
            statements = plan.statements(boundaries)
        snapshot = self._driver.take_snapshot(self._options) if self._driver is not None and boundaries else None
        return [ReadPart(statement, snapshot) for statement in statements]


class FilteringReader(DelaystoreReader):
    """The same, and the database applies the query's filters; for one query of each `load()`.

    Spark 4.3 keeps the last plan with the loaded relation. Another query of it that pushes no filters, or another side
    of a join or union, is read by that plan: with the last query's filters (seen in PythonDataSourceV2's readInfo).
    Hence it is the user's choice, by the option pushFilters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters that the database can apply; the rest is returned, for Spark to apply."""
        if not isinstance(open_readable(self._options), SqlTable):
            yield from filters
            return
        for given in filters:
            condition = condition_of(given)
            if condition is None:
                yield given
            else:
                self._conditions.append(condition)
