"""The reader: Spark's planning worker asks it for parts, its tasks for what is in them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from delaystore.errors import ConfigurationError
from delaystore.spark.held import reader_name
from delaystore.spark.keeper import KeeperClient
from delaystore.spark.options import ReadOptions
from delaystore.spark.reading.columns import arrow_schema, check_columns
from delaystore.spark.reading.filters import Condition, condition_of
from delaystore.spark.reading.pages import read_pages
from delaystore.spark.reading.partitions import Place
from delaystore.spark.reading.rows import read_rows
from delaystore.spark.reading.stores import SqlTable, open_readable, open_table

MOST_BY_DEFAULT: Final = 64
"""Parts, unless the user names a number."""
ALONE: Final = "delaystore read"
"""How a connection calls itself that reads from no shared snapshot."""


@dataclass(frozen=True)
class Part(InputPartition):
    """What a statement returns on PostgreSQL, as of a snapshot (None: as of when it is read)."""

    statement: str
    snapshot: str | None

    def __repr__(self) -> str:
        return f"Part(snapshot={self.snapshot!r})"


class DelaystoreReader(DataSourceReader):
    """Reads what waits, claimed by a dispatcher or not, as of one instant.

    PostgreSQL: in several parts, which share a snapshot that the keeper holds. While it is held (a minute after the
    last task that read from it, an hour at most), the database keeps the rows that are deleted meanwhile, so reading
    for long makes its files grow. MariaDB, MySQL and SQLite have no snapshot to share: one part. Other stores: one
    part, page by page, and so not of one instant.

    Raises ConfigurationError for columns that are not ours.
    """

    def __init__(self, schema: StructType, options: ReadOptions, keeper: KeeperClient | None) -> None:
        self._columns = check_columns(schema)
        self._schema, self._options, self._keeper = schema, options, keeper
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what the database can apply; the rest is returned, for Spark to apply."""
        if not isinstance(open_readable(self._options), SqlTable):
            yield from filters
            return
        for given in filters:
            condition = condition_of(given)
            if condition is None:
                yield given
            else:
                self._conditions.append(condition)

    def partitions(self) -> list[InputPartition]:
        """What the tasks are to read; connects to the store. Raises StoreError, ConfigurationError."""
        source = open_readable(self._options)
        if isinstance(source, SqlTable) and source.is_postgresql:
            return list(self._parts(source))
        if (self._options.partitions or 1) > 1:
            raise ConfigurationError("only PostgreSQL is read in several partitions; leave the option partitions out")
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One part's messages. Raises StoreError; one that says to load() again if the snapshot has gone."""
        wanted = arrow_schema(self._schema)
        if isinstance(partition, Part):
            from delaystore.spark.reading.postgresql import read_batches  # psycopg is for those who need it

            name = ALONE if partition.snapshot is None else reader_name(partition.snapshot)
            engine = open_table(self._options).engine
            return read_batches(engine, partition.statement, wanted, partition.snapshot, name)
        source = open_readable(self._options)
        if isinstance(source, SqlTable):
            return read_rows(source, self._conditions, wanted)
        return read_pages(source, wanted)

    def _parts(self, source: SqlTable) -> Iterable[Part]:
        if self._keeper is None and (self._options.partitions or 1) > 1:
            raise ConfigurationError("reading in several partitions needs register(spark), which starts the keeper")
        from delaystore.spark.reading.postgresql import PostgreSqlPlan  # psycopg is for those who need it

        with PostgreSqlPlan(source, self._columns, self._conditions) as plan:
            boundaries: Sequence[Place] = ()
            if self._keeper is not None and self._options.partitions != 1:
                sample = plan.sample()
                most = min(self._keeper.parallelism(), MOST_BY_DEFAULT)
                boundaries = sample.boundaries(self._options.partitions or sample.part_count(most))
            statements = plan.statements(boundaries)
        snapshot = self._keeper.hold_snapshot(self._options) if self._keeper is not None and boundaries else None
        return [Part(statement, snapshot) for statement in statements]
