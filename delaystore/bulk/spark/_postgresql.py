"""PostgreSQL: COPY, decoded to Arrow data by ADBC's driver; several tasks read from one exported snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import ClientCursor
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Select, exc, select, text
from sqlalchemy.engine import Engine

from delaystore.bulk.spark._tables import Condition, Extent, SqlTable, clauses, extent
from delaystore.registry import needed_for
from delaystore.stores.sql.bulk_partitions import SENDS_NOTHING
from delaystore.stores.sql.dialects.base import CONNECT_TIMEOUT
from delaystore.stores.sql.dialects.postgresql import on_pages
from delaystore.stores.sql.errors import translate, translated_errors
from delaystore.stores.sql.faults import as_it_stands, quoted_name

BATCH_BYTES: Final = 4 * 2**20
"""About how much goes to Spark at a time."""
_SNAPSHOT_GONE: Final = frozenset({"22023", "42704", "55000"})
"""What PostgreSQL says of a snapshot it does not know (any more), by version."""
_OF_PSYCOPG: Final = frozenset({"autocommit", "context", "cursor_factory", "prepare_threshold", "row_factory"})

_WAITS: Final = text(
    "(tableoid = CAST(:live AS REGCLASS) "
    "OR tableoid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:live AS REGCLASS)))"
)
"""Not so, in an older snapshot, of a bulk partition attached since: PostgreSQL looks at the present partitions."""


class SnapshotGoneError(Exception):
    """The snapshot to read from has gone; nothing has been read."""


class PostgreSqlPlan:
    """The planning queries of one read; use it as a context manager."""

    def __init__(self, source: SqlTable, columns: Sequence[str], conditions: Sequence[Condition]) -> None:
        self._source, self._columns, self._conditions = source, columns, conditions

    def __enter__(self) -> "PostgreSqlPlan":
        self._connection = self._source.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def extent(self) -> Extent:
        """How much is to be read. Raises StoreError."""
        (whole,) = self.statements(())
        with translated_errors():
            return extent(self._connection, self._source.table, as_it_stands(f"EXPLAIN (FORMAT JSON) {whole}"))

    def statements(self, boundaries: Sequence[int]) -> Sequence[str]:
        """A complete statement for each part that the boundaries make; a COPY takes no parameters."""
        ends = pairwise([None, *boundaries, None])
        return [_as_text(self._connection, self._select(first, end)) for first, end in ends]

    def _select(self, first: int | None, end: int | None) -> Select[Any]:
        table = self._source.table
        wanted = self._source.wanted(self._columns, self._connection)
        waits = _WAITS.bindparams(live=quoted_name(table, self._connection.dialect))
        return select(*wanted).where(waits, *clauses(table, self._conditions), *on_pages(first, end))


def read_batches(
    engine: Engine, statement: str, schema: pa.Schema, snapshot: str | None, application_name: str
) -> Iterator[pa.RecordBatch]:
    """The rows of `statement`, as of `snapshot` (None: as of now).

    Raises SnapshotGoneError before the first batch, StoreError, MissingDependencyError.
    """
    with needed_for("reading PostgreSQL with Spark"):
        import adbc_driver_manager as adbc
    with (
        _translated(adbc.Error),
        adbc.AdbcConnection(_database(_conninfo(engine))) as connection,
        adbc.AdbcStatement(connection) as query,
    ):
        _run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            _import_snapshot(connection, snapshot)
        _run(connection, f"SET application_name = '{application_name}'")
        _run(connection, SENDS_NOTHING)
        query.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        query.set_sql_query(statement)
        stream, _ = query.execute_query()
        for batch in pa.RecordBatchReader.from_stream(stream):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


@lru_cache(maxsize=4)
def _database(conninfo: str) -> Any:
    """What ADBC knows of a database (its types), learned on a first connection; Spark's workers live for many tasks."""
    with needed_for("reading PostgreSQL with Spark"):
        import adbc_driver_postgresql  # type: ignore[import-untyped] # it ships no py.typed marker

    return adbc_driver_postgresql.connect(conninfo)


def _run(connection: Any, statement: str) -> None:
    from adbc_driver_manager import AdbcStatement

    with AdbcStatement(connection) as command:
        command.set_sql_query(statement)
        command.execute_update()


def _import_snapshot(connection: Any, snapshot: str) -> None:
    try:
        _run(connection, f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    except Exception as error:
        if getattr(error, "sqlstate", None) not in _SNAPSHOT_GONE:
            raise
        raise SnapshotGoneError from None


def _conninfo(engine: Engine) -> str:
    """The parameters for libpq: those of the URL, without those for psycopg alone. Arrow's texts are UTF-8."""
    _, arguments = engine.dialect.create_connect_args(engine.url)
    arguments = {name: value for name, value in arguments.items() if name not in _OF_PSYCOPG}
    return make_conninfo(**{"connect_timeout": CONNECT_TIMEOUT, "client_encoding": "utf8", **arguments})


def _as_text(connection: Connection, statement: Select[Any]) -> str:
    compiled = statement.compile(dialect=connection.dialect)
    raw: psycopg.Connection[Any] = connection.connection.dbapi_connection  # type: ignore[assignment]
    return ClientCursor(raw).mogrify(str(compiled), compiled.params)


@contextmanager
def _translated(driver_error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except driver_error as error:
        raise translate(exc.OperationalError("", {}, error)) from None
