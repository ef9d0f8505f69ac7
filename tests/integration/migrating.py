"""Sources of migrations for tests, tables as they are, and a table of somebody else's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from sqlalchemy import Inspector, inspect, text

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationRun, MigrationSource, RunParameters, RunStatus
from delaystore.migrations.sources import open_source
from delaystore.migrations.sources._sql.source import SqlSource
from delaystore.migrations.sources._sql.tables import TableLayout
from delaystore.stores.sql.urls import OPERATING_SUFFIXES, PARTITIONS
from tests.integration.sql_stores import connected

HOLDER = "this test"
AWKWARD = 'Odd "T%me:`outs'
START = datetime(2036, 1, 1, tzinfo=UTC)


@contextmanager
def source_of(url: str, layout: TableLayout | None = None) -> Iterator[MigrationSource]:
    source = open_source(url) if layout is None else SqlSource(url, layout)
    try:
        yield source
    finally:
        source.close()


def begun(source: MigrationSource, endpoint: str = "sales", **parameters: Any) -> MigrationRun:
    """A run whose rows are all hidden."""
    run = source.begin(RunParameters(endpoint=endpoint, target="a test", **parameters))
    list(source.prepare(run))
    return source.set_status(run, RunStatus.RUNNING)


def dump(url: str, table: str) -> list[tuple[object, ...]]:
    """All of a table, as its driver reads it."""
    with connected(url) as connection:
        name = connection.dialect.identifier_preparer.quote(table).replace("%%", "%").replace(":", r"\:")
        rows = connection.execute(text(f"SELECT * FROM {name}")).all()
    return sorted((tuple(row) for row in rows), key=repr)


def tables_of(url: str) -> set[str]:
    """The tables that are there, less those beside the ones in which messages wait."""
    with connected(url) as connection:
        names = inspect(connection).get_table_names()
    return {name for name in names if not name.endswith((PARTITIONS, "_history_default", *OPERATING_SUFFIXES))}


def count(url: str, table: str, where: str = "1 = 1") -> int:
    with connected(url) as connection:
        number: int = connection.execute(text(f"SELECT count(*) FROM {table} WHERE {where}")).scalar_one()
        return number


class AwkwardLayout(TableLayout):
    """A table whose names must be quoted, of types that are easily changed on the way."""

    kind = "awkward"
    columns: ClassVar[Mapping[str, str]] = {"the id": "the key", "Due %s:": "the time", "To": "the destination"}
    id_column = "the id"
    time_column = "Due %s:"
    destination_column = "To"

    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        return {AWKWARD: AWKWARD} if inspector.has_table(AWKWARD, schema=schema) else {}

    def table_name(self, endpoint: str) -> str:
        return endpoint

    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        if row["body"] is None:
            raise InvalidMessageError("it has no body")
        return DelayedMessage(
            message_id=str(row["the id"]), destination=row["To"], due_time=row["Due %s:"], body=row["body"]
        )


_TYPES = {
    "postgresql": {
        "id": "uuid", "time": "timestamp", "body": "bytea", "number": "numeric(20, 6)", "real": "float4",
        "stamp": "timestamptz DEFAULT '2001-02-03 04:05:06.789012+07'", "text": "char(5)", "json": "jsonb",
    },
    "mysql": {
        "id": "char(36)", "time": "timestamp(6)", "body": "longblob", "number": "decimal(20, 6)", "real": "float",
        "stamp": "timestamp(6) NOT NULL DEFAULT '2001-02-03 04:05:06.789012' ON UPDATE CURRENT_TIMESTAMP(6)",
        "text": "char(5) CHARACTER SET latin1", "json": "json",
    },
    "sqlite": {
        "id": "text", "time": "datetime", "body": "", "number": "decimal(20, 6)", "real": "real",
        "stamp": "numeric DEFAULT 981173106.25", "text": "char(5)", "json": "json",
    },
}  # fmt: skip


def make_awkward_table(url: str, rows: int) -> None:
    """With a column that the database computes."""
    with connected(url) as connection:
        name = connection.dialect.name.replace("mariadb", "mysql")
        types, quote = _TYPES[name], connection.dialect.identifier_preparer.quote_identifier
        columns = {"the id": f"{types['id']} PRIMARY KEY", "Due %s:": f"{types['time']} NOT NULL", "To": "varchar(99)"}
        columns |= {key: types[key] for key in ("body", "number", "real", "stamp", "text", "json")}
        columns["computed"] = f"varchar(120) GENERATED ALWAYS AS ({quote('To').replace('%%', '%')}) STORED"
        named = ", ".join(f"{quote(key).replace('%%', '%')} {kind}" for key, kind in columns.items())
        table = quote(AWKWARD).replace("%%", "%")
        if name == "mysql":
            connection.execute(text("SET time_zone = '+00:00'"))
        connection.execute(text(f"CREATE TABLE {table} ({named})".replace(":", r"\:")))
        filled = [quote(key).replace("%%", "%") for key in columns if key not in ("stamp", "computed")]
        values = ":id, :time, :to, :body, :number, :real, :text, :json"
        insert = f"INSERT INTO {table} ({', '.join(filled)})".replace(":", r"\:") + f" VALUES ({values})"
        connection.execute(text(insert), [_row(name, number) for number in range(rows)])


def _row(dialect: str, number: int) -> dict[str, Any]:
    time = START + timedelta(seconds=number // 3, microseconds=number * 7 + 1)  # not in the order of the ids
    decimal = Decimal(number) / 7
    return {
        "id": f"{(number * 7919) % 100_000:08d}-0000-4000-8000-00000000000a",
        "time": str(time.replace(tzinfo=None)) if dialect == "sqlite" else time.replace(tzinfo=None),
        "to": ["Büro", "büro", "a%s 'b'"][number % 3],
        "body": [None, b"", b"\0\xff\\x00", b"z" * 5000][number % 4],
        "number": str(decimal) if dialect == "sqlite" else decimal,
        "real": 0.1 * number,
        "text": ["ä", "a b ", None, ""][number % 4],
        "json": ['{"b": 1, "a": "\\u0000"}'.replace("\\u0000", "x"), None][number % 2],
    }
