"""PostgreSQL reads as much as is dispatched or shown, whatever its statistics make of the table."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, make_url

from delaystore.message import EARLIEST_DUE_TIME, Position
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql import _statements
from delaystore.stores.sql._claims import DueScan
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQL
from tests.servers.postgresql import connect

WAITING, DUE = 20_000, 5_000
HOUR = timedelta(hours=1)


@pytest.fixture
def store(private_postgresql: PostgreSQL) -> Iterator[SqlDelayedMessageStore]:
    """Many wait, and none was due when statistics were made; many are due now, and many were removed lately."""
    url = private_postgresql.create_database()
    with opened(url) as store:
        now = store.now()
        store.store_many(message(now, 3600 + number) for number in range(WAITING))
        execute(private_postgresql, url, "ALTER TABLE sales_delayed SET (autovacuum_enabled = false)")
        execute(private_postgresql, url, "VACUUM (ANALYZE) sales_delayed")
        store.store_many(message(now, -1) for _ in range(2 * DUE))
        with store.transaction() as transaction:
            transaction.remove_many(transaction.fetch_due(now, DUE))
        yield store
    private_postgresql.drop_database(url)


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize(
    ("rows", "pages"),
    [
        pytest.param(0, 10, id="a table that was empty once"),
        pytest.param(10_000, 1, id="a table of millions"),
        pytest.param(1, 10_000, id="a table that is nearly empty"),
    ],
)
def test_a_batch_costs_what_it_holds(
    store: SqlDelayedMessageStore, private_postgresql: PostgreSQL, rows: int, pages: int
) -> None:
    believed = f"UPDATE pg_class SET reltuples = {rows}, relpages = {pages} WHERE relname = 'sales_delayed'"
    execute(private_postgresql, store.engine.url.render_as_string(hide_password=False), believed)
    with store.transaction() as transaction:
        transaction.fetch_due(EARLIEST_DUE_TIME, 1)  # what the transaction needs is set before its first search
        claim = planned(transaction.connection, "FOR UPDATE SKIP LOCKED", "EXPLAIN (ANALYZE, FORMAT JSON)")
        batch = transaction.fetch_due(store.now(), 1000)
        scan = scan_of(*claim)
        assert kind(scan) == "Index Scan using sales_delayed_due"
        assert scan["Actual Rows"] == len(batch) == 1000
        removal = planned(transaction.connection, "DELETE", "EXPLAIN (FORMAT JSON)")
        assert transaction.remove_many(batch) == 1000
        assert kind(scan_of(*removal)) == "Tid Scan"


@pytest.fixture
def much_waits(private_postgresql: PostgreSQL) -> Iterator[SqlDelayedMessageStore]:
    """Statistics say that the table is nearly empty, and that nothing is due as late as what waits."""
    url = private_postgresql.create_database()
    with opened(url) as store:
        now = store.now()
        execute(private_postgresql, url, "ALTER TABLE sales_delayed SET (autovacuum_enabled = false)")
        store.store_many(message(now, number) for number in range(100))
        execute(private_postgresql, url, "VACUUM (ANALYZE) sales_delayed")
        store.store_many(message(now, (7919 * number) % WAITING) for number in range(WAITING))
        believed = "UPDATE pg_class SET reltuples = 1, relpages = 10000 WHERE relname = 'sales_delayed'"
        execute(private_postgresql, url, believed)
        yield store
    private_postgresql.drop_database(url)


LOOKS: Mapping[str, Callable[[SqlDelayedMessageStore, datetime], object]] = {
    "the first page": lambda store, _: store.list(),
    "a page behind": lambda store, middle: store.list(after=Position(middle, "")),
    "a page since": lambda store, middle: store.list(since=middle),
    "a page until": lambda store, middle: store.list(until=middle),
    "a page between": lambda store, middle: store.list(since=middle, until=middle + HOUR),
    "a page behind, until": lambda store, middle: store.list(after=Position(middle, ""), until=middle + HOUR),
    "next": lambda store, _: store.next(),
    "status": lambda store, _: store.status(),
}


@pytest.mark.long_runs(after=4)
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_what_waits_goes_by_the_index(much_waits: SqlDelayedMessageStore, look: str) -> None:
    middle = much_waits.now() + timedelta(seconds=WAITING / 2)
    plans = planned(much_waits.engine, 'FROM "sales_delayed"', "EXPLAIN (ANALYZE, FORMAT JSON)")
    LOOKS[look](much_waits, middle)
    for plan in plans:
        assert_by_index(plan)


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize("look", ["next", "status"])
def test_a_look_behind_deleted_rows_goes_by_the_index(
    much_waits: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    middle = much_waits.now() + timedelta(seconds=WAITING / 2)
    monkeypatch.setattr(DueScan, "start", lambda _: Position(middle, ""))
    plans = planned(much_waits.engine, 'FROM "sales_delayed"', "EXPLAIN (ANALYZE, FORMAT JSON)")
    LOOKS[look](much_waits, middle)
    for plan in plans:
        assert_by_index(plan)


def test_few_are_counted_for_an_estimate(much_waits: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_statements, "COUNTED", 1000)
    plans = planned(much_waits.engine, 'FROM "sales_delayed"', "EXPLAIN (ANALYZE, FORMAT JSON)")
    assert not much_waits.estimate_count().exact
    (plan,) = plans
    assert kind(scan_of(plan)).startswith("Index Only Scan")
    assert scan_of(plan)["Actual Rows"] == 1001


def planned(bind: Connection | Engine, part: str, explain: str) -> list[dict[str, Any]]:
    """The plans of statements with `part` from now on, added as they are executed."""
    plans: list[dict[str, Any]] = []

    def look(connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if part in statement:
            driver: Any = connection.connection.driver_connection
            with driver.transaction(force_rollback=True):
                row = driver.execute(f"{explain} {statement}", parameters).fetchone()
            plans.append(row[0][0]["Plan"])

    event.listen(bind, "before_cursor_execute", look)
    return plans


def assert_by_index(plan: dict[str, Any]) -> None:
    """Fail unless the index of due times, or of failing messages, gave a page, in its order."""
    scan = scan_of(plan)
    assert re.fullmatch("Index (Only )?Scan using sales_delayed_(due|failing)", kind(scan)), kind(scan)
    assert scan["Actual Rows"] <= 1000
    assert "Sort" not in map(kind, parts_of(plan))


def scan_of(plan: dict[str, Any]) -> dict[str, Any]:
    """The one scan of the table."""
    (scan,) = [part for part in parts_of(plan) if part.get("Alias") == "sales_delayed" and "Scan" in part["Node Type"]]
    return scan


def kind(part: dict[str, Any]) -> str:
    """The name of a part of a plan, with that of its index."""
    index = part.get("Index Name")
    return f"{part['Node Type']} using {index}" if index else str(part["Node Type"])


def parts_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan and all its parts."""
    yield plan
    for part in plan.get("Plans", []):
        yield from parts_of(part)


def execute(server: PostgreSQL, url: str, statement: str) -> None:
    """As the superuser, in the database of `url`."""
    with connect(make_url(server.admin_url).set(database=make_url(url).database)) as connection:
        connection.execute(statement.encode())
