"""The SQL of every database, compiled and compared with files; `WRITE_SQL=1` writes them again.

A change of these files is a change of what databases are asked: their plans and locks are to be looked at again.
`make test` compares the store's statements, `make test-long` all.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from inspect import getattr_static
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import MagicMock

import pytest
from sqlalchemy import (
    Column,
    Dialect,
    Engine,
    Executable,
    Insert,
    MetaData,
    NestedTransaction,
    String,
    Table,
    create_engine,
    insert,
    literal,
    select,
)
from sqlalchemy.dialects import mssql
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.util import memoized_property

from delaystore.bulk.options import OnDuplicate
from delaystore.bulk.staging._dialects import (
    STAGING_DIALECTS,
    distinct_ids,
    staging_table,
    there_already,
    twice,
    waiting_already,
)
from delaystore.message import OnKey
from delaystore.migrations.sources._sql._database import MIGRATION_DIALECTS, MigrationDialect
from delaystore.migrations.sources._sql.source import DelaystoreLayout
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, Instant, RunTables, batches_table, runs_table
from delaystore.stores.sql._keyed import OneStatement, keyed_of
from delaystore.stores.sql._statements import Search, Settling, Statements, statements_of
from delaystore.stores.sql.codec import FIRST_SENT, MESSAGE_KEY, NAMES, WITH_NOT_AFTER
from delaystore.stores.sql.dialects import Claiming, dialect_of, store_dialect_of
from delaystore.stores.sql.dialects.base import OWN
from delaystore.stores.sql.dialects.mysql import INSERT_LOCK_TIMEOUT
from delaystore.stores.sql.faults import quoted_name
from delaystore.stores.sql.schema import OperatingTables
from delaystore.transports.sql_queue._receiving import LeasedTable, LockedTable, OpenTable
from delaystore.transports.sql_queue._tables import QueueTables, queue_table

FOLDER: Final = Path(__file__).parent / "compiled_sql"
NOW: Final = datetime(2040, 1, 1, tzinfo=UTC)
TOKEN: Final = "0123456789abcdef0123"
NO_STATEMENTS: Final = ("partitions", "operating_tables", "numbered", "cancel", "reschedule")
MARIADB_ALONE: Final = (
    f"SET STATEMENT innodb_lock_wait_timeout = LEAST(@@SESSION.innodb_lock_wait_timeout, {INSERT_LOCK_TIMEOUT}) FOR "
)
"""What MySQL does not know; all else is the same."""
OPTIONS: Final = (")ROW_FORMAT=DYNAMIC ENGINE=InnoDB", ")ENGINE=InnoDB ROW_FORMAT=DYNAMIC")
"""A table's options in either order: SQLAlchemy 2.0 takes them from a set, in the order of Python's random hashes."""
URLS: Final = {
    "postgresql": "postgresql+psycopg://",
    "mysql": "mysql+pymysql://",
    "mariadb": "mariadb+pymysql://",
    "sqlite": "sqlite:///unused.db",
}


class Answer:
    """What a statement returned: little."""

    rowcount = 1

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def first(self) -> Any:
        return self.rows[0] if self.rows else None

    one = first

    def all(self) -> list[Any]:
        return self.rows

    def close(self) -> None:
        pass

    def scalar(self) -> Any:
        return 1

    scalar_one = scalar

    def scalars(self) -> list[Any]:
        return [row[0] for row in self.rows]


class FoundRow(tuple[Any, ...]):
    """(next_attempt, message_id) of a row."""

    __slots__ = ()
    seq, done, there, returned, load_number = 1, True, True, None, None
    message_id, body, headers, properties = "m1", b"", None, None


class Recorder:
    """A connection, and an engine, that writes down what it should execute."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.lines: list[str] = []
        self.invalidated = False
        self.info: dict[str, Any] = {}
        self.connection = SimpleNamespace(dbapi_connection=SimpleNamespace(in_transaction=False))
        self.begun = False

    def execute(self, statement: ClauseElement, parameters: Any = None, **_: Any) -> Answer:
        self.lines.append(sql(statement, self.dialect, parameters))
        return Answer([FoundRow((NOW, "m1", 2, 2))])

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Answer:
        self.lines.append(statement)
        return Answer([(50, 60)])

    def connect(self) -> AbstractContextManager["Recorder"]:
        return self

    def get_execution_options(self) -> dict[str, bool]:
        return {OWN: True}

    def get_transaction(self) -> None:
        return None

    def in_transaction(self) -> bool:
        return self.begun

    def begin(self) -> AbstractContextManager[None]:
        self.lines.append("(begin)")
        self.begun = True
        return nullcontext()

    def begin_nested(self) -> MagicMock:
        self.lines.append("(savepoint)")
        return MagicMock(spec=NestedTransaction)

    def commit(self) -> None:
        self.lines.append("(commit)")

    def close(self) -> None:
        self.lines.append("(close)")

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _run_ddl_visitor(self, *_: object, **__: object) -> None:
        self.lines.append("(create)")


def sql(statement: Any, dialect: Dialect, parameters: Any = None, columns: Sequence[str] | None = None) -> str:
    is_of_rows = isinstance(statement, Insert) and statement.select is None
    compiled = statement.compile(dialect=dialect, **({"column_keys": columns} if columns and is_of_rows else {}))
    text = str(compiled).removeprefix(MARIADB_ALONE)
    values = dict(getattr(compiled, "params", None) or {}) | (parameters if isinstance(parameters, dict) else {})
    fixed = {name: value for name, value in values.items() if type(value) in (int, str) and len(str(value)) != 36}
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + (f"\n-- {fixed}" if fixed else "")


class Book:
    """The statements of one database, by heading."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.parts: list[str] = []

    def add(self, heading: str, *statements: Any, columns: Sequence[str] | None = None) -> None:
        """`columns`: those of which an insert gets values, if not all."""
        texts = [text if isinstance(text, str) else sql(text, self.dialect, columns=columns) for text in statements]
        self.parts.append(f"-- # {heading}\n" + "\n;\n".join(texts) + "\n")

    def run(self, heading: str, action: Callable[[Any], Any]) -> None:
        recorder = Recorder(self.dialect)
        result = action(recorder)
        if isinstance(result, AbstractContextManager):
            with result:
                recorder.lines.append("(block)")
        elif callable(result):
            result()
        self.add(heading, *recorder.lines)

    def compare(self, what: str) -> None:
        """MariaDB is asked the same as MySQL, but for the words that SQLAlchemy quotes, and the engine."""
        text, is_mariadb = "\n".join(self.parts).replace(*OPTIONS), self.dialect.name == "mariadb"
        path = FOLDER / f"{what}_{'mysql' if is_mariadb else self.dialect.name}.sql"
        if os.environ.get("WRITE_SQL") and not is_mariadb:
            path.write_text(text)
        expected = path.read_text()
        if is_mariadb:
            text, expected = (_plain(sql) for sql in (text, expected))
        assert text == expected


def _plain(sql: str) -> str:
    return sql.replace("`", "").replace("ENGINE=InnoDB", "")


@pytest.fixture(params=URLS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = create_engine(URLS[request.param])
    yield engine
    engine.dispose()


def live_table(engine: Engine) -> Table:
    return statements(engine).table


def statements(engine: Engine) -> Statements:
    dialect = store_dialect_of(engine)
    return statements_of("sales_delayed", None if dialect.claiming is Claiming.LEASES else "my schema", dialect)


def created(table: Table) -> list[Any]:
    return [CreateTable(table), *(CreateIndex(index) for index in sorted(table.indexes, key=lambda i: str(i.name)))]


def built(of: object) -> Iterator[tuple[str, ClauseElement]]:
    """The statements that are built when they are first used, by name."""
    for name in sorted(dir(type(of))):
        is_lazy = isinstance(getattr_static(type(of), name), memoized_property)
        statement = getattr(of, name) if is_lazy else None
        if isinstance(statement, Executable):
            yield name, statement
        elif isinstance(statement, Search):
            yield from ((name, statement.beginning), (f"{name}_behind", statement.behind))
        elif isinstance(statement, Settling):
            yield from ((name, statement.by_id), (f"{name}_stored", statement.by_stored_id))


def keyed_statements(statements: Statements) -> Iterator[tuple[str, ClauseElement]]:
    keyed = keyed_of(statements, 5.0)
    for name, statement in built(keyed):
        yield f"keyed: {name.strip('_')}", statement
    if isinstance(keyed, OneStatement):
        for on_key in OnKey:
            for is_bounded in (False, True)[: 1 + (on_key is OnKey.DEBOUNCE)]:
                for is_noted in (False, True)[: 1 + (keyed._upserts.notes_replaced and on_key is OnKey.REPLACE)]:
                    name = f"keyed: {on_key}{', bounded' * is_bounded}{', noted' * is_noted}"
                    yield name, keyed._statement(on_key, is_bounded, is_noted)


def test_the_store(engine: Engine) -> None:
    book, dialect, table = Book(engine.dialect), store_dialect_of(engine), live_table(engine)
    book.add("table", *created(table))
    sql = statements(engine)
    for name, statement in built(sql):
        if name not in NO_STATEMENTS and not name.startswith("_"):
            book.add(name, statement, columns=NAMES)
    for names, inserts in ((NAMES, sql.inserts), (WITH_NOT_AFTER, sql.inserts_with_not_after)):
        for name, statement in built(inserts):
            book.add(f"{name}{' with a latest delivery' * (names is WITH_NOT_AFTER)}", statement, columns=names)
    for name, statement in keyed_statements(sql):
        book.add(name, statement, columns=(*WITH_NOT_AFTER, MESSAGE_KEY, FIRST_SENT))
    clock = dialect.clock()
    book.add("clock", "this computer's" if clock is None else select(clock))
    book.run("setup lock", lambda c: dialect.setup_lock(c, "sales_delayed"))
    book.run("savepoint", lambda c: dialect.savepoint(c))
    new_time = {"id": "m1", "new_due_time": NOW}
    book.run("cancel", lambda c: dialect.change_unclaimed(c, table, sql.cancel, {"id": "m1"}, NOW) and None)
    book.run("reschedule", lambda c: dialect.change_unclaimed(c, table, sql.reschedule, new_time, NOW) and None)
    book.run("notify", lambda c: dialect.notifications and dialect.notifications.notify(c, "channel", "payload"))
    book.add("storage options", *dialect.time_checks(), *dialect.storage_options())
    book.add("among", select(table.c.message_id).where(dialect.among(table.c.message_id, "ids")))
    book.compare("store")


@pytest.mark.long
def test_the_sql_queue(engine: Engine) -> None:
    book = Book(engine.dialect)
    table = queue_table("billing", "my schema", store_dialect_of(engine))
    book.add("table", *created(table))
    book.add("insert", insert(table).inline())
    tables = QueueTables("my schema", store_dialect_of(engine))

    def opened(connections: Any) -> OpenTable:
        if engine.dialect.name == "sqlite":
            return LeasedTable(connections, tables, "billing", timedelta(seconds=60))
        return LockedTable(connections, tables, "billing")

    def consume(connections: Any) -> None:
        reading = opened(connections)
        reading.consume(reading.claim(10))

    def give_back(connections: Any) -> None:
        reading = opened(connections)
        reading.claim(10)
        reading.give_back()

    book.run("claimed and consumed", consume)
    book.run("claimed and given back", give_back)
    book.run("delete", lambda c: store_dialect_of(engine).delete_locked(c, table, "seq", [1, 2]))
    book.run("lock wait", lambda c: store_dialect_of(engine).lock_wait(c, 2.5))
    book.compare("sql_queue")


def copied_table(name: str, time: Any, schema: str | None, *more: Column[Any]) -> Table:
    texts = [Column(column, String(255), info={"reflected": String(255)}) for column in ("message_id", "destination")]
    times = [Column(column, Instant(time), info={"reflected": time}) for column in ("due_time", "next_attempt")]
    return Table(name, MetaData(), *texts, *times, *more, schema=schema, quote=True)


def migration(book: Book, dialect: MigrationDialect, time: Any) -> None:
    schema = None if book.dialect.name == "sqlite" else "my schema"
    side = Column(BATCH), Column(REJECTED, String)
    tables = RunTables(
        endpoint="sales",
        layout=DelaystoreLayout(),
        source=copied_table("sales_delayed", time, schema),
        side=copied_table("sales_delayed_migrating", time, schema, *side),
        runs=runs_table("sales_delayed_migration_run", schema),
        batches=batches_table("sales_delayed_migration_batches", schema),
    )
    source, key = tables.source, tables.source.c.message_id
    order = source.c.next_attempt, key
    behind = dialect.behind(order, (literal(NOW, order[0].type), literal("m1", key.type)))
    search = select(*order).where(behind).order_by(*order)
    connection: Any = Recorder(book.dialect)
    book.add("tables", *created(tables.runs), *created(tables.batches))
    if book.dialect.name != "sqlite":
        book.run("lock", lambda c: dialect.take_lock(c, "migration my schema.sales_delayed", "me"))
        book.run("holder", lambda c: dialect.lock_owner(c, "migration my schema.sales_delayed") and None)
    book.add("side table", *dialect.creating(connection, tables))
    book.add("dropping", *dialect.dropping(connection, tables.created))
    book.run("writing", lambda c: dialect.begin_writing(c))
    book.run("by index", lambda c: dialect.prefer_indexes(c))
    book.add("search", dialect.lock_free(dialect.limited(search, 7), source))
    book.run(
        "hide", lambda c: dialect.hide(c, tables, 3, dialect.limited(search, 7), source.c.next_attempt > NOW) and None
    )
    book.add("among", select(key).where(dialect.one_of(key, ["m1", "m2"])))
    book.add("moving", dialect.moving(tables, 3, ["m1"]))
    book.add("removing", dialect.removing(tables, 3, ["m1"]))
    book.add("rejecting", dialect.rejecting(tables, 3))
    book.add("bytewise", select(dialect.bytewise(source.c.destination)))
    book.add("rights_checks", *dialect.rights_checks(tables))
    book.run("may create", lambda c: dialect.may_create(c, None) and None)
    book.add("name", quoted_name(source, connection.dialect))


@pytest.mark.long
def test_a_migration(engine: Engine) -> None:
    book = Book(engine.dialect)
    time = live_table(engine).c.due_time.type.load_dialect_impl(engine.dialect)
    dialect = dialect_of(engine, MIGRATION_DIALECTS)
    migration(book, dialect, time)
    clock = dialect.clock()
    book.add("clock", "this computer's" if clock is None else select(clock))
    book.compare("migration")


@pytest.mark.long
def test_a_migration_from_sql_server() -> None:
    class ServerEngine:
        dialect = mssql.dialect()

    engine: Any = ServerEngine()
    book, dialect = Book(engine.dialect), dialect_of(engine, MIGRATION_DIALECTS)
    migration(book, dialect, mssql.DATETIME2(6))
    book.add("clock", select(dialect.clock()))
    book.compare("migration")


@pytest.mark.long
def test_staging(engine: Engine) -> None:
    book, dialect, live = Book(engine.dialect), dialect_of(engine, STAGING_DIALECTS), live_table(engine)
    name = store_dialect_of(engine)
    staging = staging_table(live, TOKEN, name, dialect.prefixes)
    staged = select(*(staging.c[name] for name in NAMES)).where(staging.c.attempt.in_([1]))
    book.add("registry", *created(OperatingTables(live, name).loads))
    book.add("staging", *created(staging))
    book.run("begin", lambda c: dialect.begin_writing(c))
    book.run("take time", lambda c: dialect.take_time(c))
    book.run("create", lambda c: dialect.create(c, staging))
    book.run("drop", lambda c: dialect.drop(c, '"a:b"'))
    book.run("empty", lambda c: dialect.empty(c, '"a:b"'))
    for on_duplicate in OnDuplicate:
        book.add(f"promoting, duplicates: {on_duplicate}", dialect.promoting(live, NAMES, staged, on_duplicate))
    book.run("claimed", lambda c: dialect.is_claimed(c, live, staged, NOW) and None)
    book.add("there already", there_already(staged, live, "m", 10))
    book.add("distinct ids", distinct_ids(staged))
    book.add("twice", twice(staged))
    book.add("waiting already", waiting_already(staged, live))
    book.add("registry insert", dialect.insert(OperatingTables(live, name).loads))
    book.compare("staging")
