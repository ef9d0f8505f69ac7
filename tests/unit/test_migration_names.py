"""Names of the tables of a run, and what is said of a table that lacks a column."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from delaystore.migrations.sources import open_source
from delaystore.migrations.sources._sql.tables import BATCHES, RUNS, SIDE
from delaystore.stores.sql.dialects import DIALECTS
from delaystore.stores.sql.urls import derived_name


@pytest.mark.parametrize("suffix", [SIDE, RUNS, BATCHES])
def test_a_name_that_leaves_room_is_kept(suffix: str) -> None:
    assert derived_name("sales_delayed", suffix, DIALECTS["postgresql"]) == f"sales_delayed{suffix}"


@pytest.mark.parametrize(("database", "limit"), [("postgresql", 63), ("mysql", 64), ("mssql", 128)])
@pytest.mark.parametrize("name", ["x" * 200, "ü" * 100, "a" + "😀" * 60])
def test_a_long_name_is_shortened_to_what_fits_and_stays_its_own(name: str, database: str, limit: int) -> None:
    dialect = DIALECTS[database]
    short = derived_name(name, SIDE, dialect)
    assert len(short.encode()) <= limit
    assert short.endswith(SIDE)
    assert short != derived_name(name + "x", SIDE, dialect)
    assert short != derived_name(name, RUNS, dialect)


ADVICE = "run `delaystore setup` on the source first"


@pytest.mark.parametrize(
    ("scheme", "table", "columns", "kind", "is_advised"),
    [
        ("sqlite", "sales_delayed", "message_id TEXT PRIMARY KEY, due_time TEXT", "delaystore", True),
        ("nservicebus-sql+sqlite", "sales_TimeoutData", "Id TEXT PRIMARY KEY, Time TEXT", "NServiceBus", False),
    ],
)
def test_a_store_of_an_older_release_is_to_be_set_up_first(
    tmp_path: Path, scheme: str, table: str, columns: str, kind: str, is_advised: bool
) -> None:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f'CREATE TABLE "{table}" ({columns})')
    with closing(open_source(f"{scheme}:///{path}")) as source:
        texts = [problem.text for problem in source.check("sales") if "has no column" in problem.text]
    assert texts
    assert all(f"is it {kind}" in text and (ADVICE in text) is is_advised for text in texts)
