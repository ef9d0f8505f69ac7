"""A connection to SQLite that is closed while a cursor of it is still held, as by a task that was cancelled."""

import sqlite3
from contextlib import closing
from pathlib import Path

from delaystore.stores.sql.dialects.sqlite import ForkSafeConnection


def test_closing_it_frees_the_database(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path, isolation_level=None, factory=ForkSafeConnection)
    connection.execute("CREATE TABLE orders (id INTEGER)").close()
    connection.execute("BEGIN IMMEDIATE").close()
    held = connection.execute("SELECT 1 UNION SELECT 2")
    connection.close()
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("INSERT INTO orders VALUES (3)")
        assert other.execute("SELECT id FROM orders").fetchall() == [(3,)]
    connection.close()  # once more does no harm
    assert held.connection is connection  # it was held until now
