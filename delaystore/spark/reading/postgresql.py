"""PostgreSQL: COPY, decoded to Arrow data by ADBC's driver; several tasks read from one exported snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import ClientCursor
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Select, exc, select
from sqlalchemy.engine import Engine

from delaystore.errors import MissingDependencyError, StoreError
from delaystore.spark.reading.filters import Condition, bounded, clauses
from delaystore.spark.reading.partitions import Place, Sample, between, sample
from delaystore.spark.reading.stores import SqlTable
from delaystore.stores.sql.engine import CONNECT_TIMEOUT
from delaystore.stores.sql.translation import translate, translated_errors

BATCH_BYTES: Final = 4 * 2**20
"""About how much goes to Spark at a time."""
_SNAPSHOT_GONE: Final = frozenset({"22023", "42704", "55000"})
"""What PostgreSQL says of a snapshot it does not know (any more), by version."""
_OF_PSYCOPG: Final = frozenset({"autocommit", "context", "cursor_factory", "prepare_threshold", "row_factory"})


class PostgreSqlPlan:
    """What the planning of one read asks of the database; use it as a context manager."""

    def __init__(self, source: SqlTable, columns: Sequence[str], conditions: Sequence[Condition]) -> None:
        self._source, self._columns, self._conditions = source, columns, bounded(conditions)

    def __enter__(self) -> "PostgreSqlPlan":
        with translated_errors():
            self._connection = self._source.engine.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def sample(self) -> Sample:
        """Some of the messages that are to be read. Raises StoreError."""
        with translated_errors():
            return sample(self._connection, self._source.table, self._conditions)

    def statements(self, boundaries: Sequence[Place]) -> Sequence[str]:
        """A complete statement for each part that the boundaries make; a COPY takes no parameters."""
        ends = pairwise([None, *boundaries, None])
        return [_as_text(self._connection, self._select(since, until)) for since, until in ends]

    def _select(self, since: Place | None, until: Place | None) -> Select[Any]:
        table = self._source.table
        wanted = [table.c[name] for name in self._columns]
        return select(*wanted).where(*clauses(table, self._conditions), *between(table, since, until))


def read_batches(
    engine: Engine, statement: str, schema: pa.Schema, snapshot: str | None, application_name: str
) -> Iterator[pa.RecordBatch]:
    """What `statement` returns, as of `snapshot` (None: as of now). Raises StoreError, MissingDependencyError."""
    try:
        from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped] # it ships no py.typed marker
    except ModuleNotFoundError:
        raise MissingDependencyError(
            'adbc-driver-postgresql is not installed, by which Spark reads PostgreSQL; pip install "delaystore[spark]"'
        ) from None
    conninfo = _conninfo(engine, application_name)
    with (
        _translated(dbapi.Error),
        dbapi.connect(conninfo, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            _import_snapshot(cursor, snapshot)
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        cursor.execute(statement)
        for batch in cursor.fetch_record_batch():
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _import_snapshot(cursor: Any, snapshot: str) -> None:
    try:
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    except Exception as error:
        if getattr(error, "sqlstate", None) not in _SNAPSHOT_GONE:
            raise
        raise StoreError(
            "the snapshot that this DataFrame was planned with is released after a minute without use, or an hour; "
            "load() the DataFrame again"
        ) from None


def _conninfo(engine: Engine, application_name: str) -> str:
    """What libpq is to be told: what the URL says, less what is for psycopg alone."""
    _, arguments = engine.dialect.create_connect_args(engine.url)
    arguments = {name: value for name, value in arguments.items() if name not in _OF_PSYCOPG}
    return make_conninfo(**{"connect_timeout": CONNECT_TIMEOUT, **arguments, "application_name": application_name})


def _as_text(connection: Connection, statement: Select[Any]) -> str:
    compiled = statement.compile(dialect=connection.dialect)
    raw: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    return ClientCursor(raw).mogrify(str(compiled), compiled.params)


@contextmanager
def _translated(driver_error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except driver_error as error:
        raise translate(exc.OperationalError("", {}, error)) from None
