"""What a migration says about a table that lacks a column."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from delaystore.migrations.sources import open_source

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
