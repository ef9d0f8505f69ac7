"""Enlisting in the transactions of drivers' own connections: psycopg, sqlite3, PyMySQL."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg.rows import dict_row
from psycopg.types.numeric import FloatLoader
from pymysql.cursors import DictCursor
from sqlalchemy import make_url

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, DuplicateMessageError, StoreError, StoreUnavailableError
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome

Connect = Callable[..., Any]
MANUAL = DelayedDeliverySettings(automatic_setup=False)


@pytest.fixture(params=["postgresql_url", "mariadb_url", "sqlite_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def delivery(url: str) -> Iterator[DelayedDelivery]:
    delivery = DelayedDelivery("sales", SqlDelayedMessageStore(url), settings=MANUAL)
    delivery.setup_infrastructure()
    yield delivery
    delivery.close()


def connected(url: str, **options: Any) -> Any:
    """A connection of the driver's own to the database of a store's URL."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return sqlite3.connect(str(parsed.database), **options)
    if parsed.get_backend_name() == "postgresql":
        return psycopg.connect(parsed.set(drivername="postgresql").render_as_string(hide_password=False), **options)
    return pymysql.connect(
        host=parsed.host,
        port=parsed.port or 3306,
        user=parsed.username,
        password=parsed.password or "",
        database=parsed.database,
        **options,
    )


@pytest.fixture
def connection(url: str, delivery: DelayedDelivery) -> Iterator[Any]:
    with closing(connected(url)) as connection:
        connection.cursor().execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.commit()
        yield connection


def orders(connection: Any) -> int:
    cursor = connection.cursor()
    cursor.execute("SELECT count(*) FROM orders")
    return int(cursor.fetchone()[0])


def test_all_of_it_is_in_the_transaction(delivery: DelayedDelivery, connection: Any) -> None:
    before = delivery.send("billing", b"before", delay=60)
    moved = delivery.send("billing", b"moved", delay=60)

    def work() -> str:
        connection.cursor().execute("INSERT INTO orders VALUES (1)")
        enlisted = delivery.enlist(connection)
        sent = enlisted.send("billing", "ü".encode(), delay=3600, headers={"a": ["b", None, 3]})
        undone = enlisted.send("billing", b"", delay=60)
        found = enlisted.get(sent)
        assert found is not None
        assert (found.body, found.headers) == ("ü".encode(), {"a": ["b", None, 3]})
        with pytest.raises(DuplicateMessageError):
            enlisted.send("billing", b"", delay=60, message_id=moved)
        assert enlisted.cancel(undone) is ManagementOutcome.DONE
        assert enlisted.get(undone) is None
        assert enlisted.cancel(before) is ManagementOutcome.DONE
        assert enlisted.cancel("unknown") is ManagementOutcome.NOT_FOUND
        assert enlisted.reschedule(moved, at=found.due_time) is ManagementOutcome.DONE
        assert enlisted.send_many([]) == 0
        return sent

    work()
    connection.rollback()
    assert {waiting.body for waiting in delivery.list().messages} == {b"before", b"moved"}
    assert orders(connection) == 0
    sent = work()
    connection.commit()
    waiting = {message.message_id: message.due_time for message in delivery.list().messages}
    assert waiting.keys() == {sent, moved}
    assert waiting[sent] == waiting[moved]
    assert orders(connection) == 1


def test_a_store_that_has_never_connected_rolls_nothing_back(
    delivery: DelayedDelivery, connection: Any, url: str
) -> None:
    """SQLAlchemy asks a server what it is when an engine first connects, and rolls back then."""
    with closing(SqlDelayedMessageStore(url)) as fresh:
        connection.cursor().execute("INSERT INTO orders VALUES (1)")
        DelayedDelivery("sales", fresh, settings=MANUAL).enlist(connection).send("billing", b"", delay=60)
        connection.commit()
    assert (orders(connection), delivery.count()) == (1, 1)


def test_a_savepoint_undoes_what_came_after_it(delivery: DelayedDelivery, connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO orders VALUES (1)")
    enlisted = delivery.enlist(connection)
    kept = enlisted.send("billing", b"", delay=60)
    cursor.execute("SAVEPOINT mine")
    enlisted.send("billing", b"", delay=60)
    enlisted.cancel(kept)
    messages = [message for message in [enlisted.get(kept)] if message]
    assert messages == []
    cursor.execute("ROLLBACK TO SAVEPOINT mine")
    connection.commit()
    assert [message.message_id for message in delivery.list().messages] == [kept]
    assert orders(connection) == 1


def test_a_dispatcher_that_has_the_message_is_not_waited_for(delivery: DelayedDelivery, connection: Any) -> None:
    store = delivery._store
    assert isinstance(store, SqlDelayedMessageStore)
    due = delivery.send("billing", b"", delay=0)
    claimed = store.transaction()
    with claimed as dispatcher:
        assert len(dispatcher.fetch_due(store.now(), 5)) == 1
        enlisted = delivery.enlist(connection)
        assert enlisted.cancel(due) is ManagementOutcome.BEING_DISPATCHED
        assert enlisted.reschedule(due, delay=60) is ManagementOutcome.BEING_DISPATCHED
        assert enlisted.get(due) is not None
        connection.rollback()


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_what_is_set_for_a_psycopg_connection_holds_no_more_and_no_less(url: str, delivery: DelayedDelivery) -> None:
    with closing(connected(url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.adapters.register_loader("text", FloatLoader)
        adapters = dict(connection.adapters._loaders[0])
        with connection.transaction():
            enlisted = delivery.enlist(connection)
            sent = enlisted.send("billing", b"x", delay=60)
            assert enlisted.send_many([]) == 0
            found = enlisted.get(sent)
        assert found is not None
        assert found.destination == "billing"
        assert connection.row_factory is dict_row
        assert connection.cursor_factory is psycopg.ClientCursor
        assert connection.isolation_level is psycopg.IsolationLevel.SERIALIZABLE
        assert not connection.autocommit
        assert connection.adapters._loaders[0] == adapters
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert delivery.count() == 1


@pytest.mark.parametrize("url", ["mariadb_url"], indirect=True)
def test_a_cursor_class_of_pymysql(url: str, delivery: DelayedDelivery) -> None:
    with closing(connected(url, cursorclass=DictCursor)) as connection:
        enlisted = delivery.enlist(connection)
        assert enlisted.get(enlisted.send("billing", b"x", delay=60)) is not None
        connection.commit()
    assert delivery.count() == 1


@pytest.mark.parametrize("statement", ["INSERT INTO orders VALUES (1)", "BEGIN EXCLUSIVE"])
@pytest.mark.parametrize("form", ["{}", "file:{}?uri=true"], ids=["path", "uri"])
def test_a_new_store_does_not_wait_for_the_transaction_in_a_file_without_wal(
    tmp_path: Path, form: str, statement: str
) -> None:
    """It would switch the file to WAL on a connection of its own."""
    file = tmp_path / "app.db"
    with DelayedDelivery("sales", SqlDelayedMessageStore(f"sqlite:///{file}")):
        pass
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").close()
        connection.execute("CREATE TABLE orders (id INTEGER)").close()
        connection.execute(statement).close()
        with DelayedDelivery(
            "sales", SqlDelayedMessageStore(f"sqlite:///{form.format(file)}"), settings=MANUAL
        ) as delivery:
            delivery.enlist(connection).send("billing", b"", delay=60)
            connection.commit()
            assert delivery.count() == 1


@pytest.mark.parametrize("url", ["sqlite_url"], indirect=True)
def test_a_file_of_sqlite_that_has_gone_is_named(url: str, delivery: DelayedDelivery) -> None:
    file = Path(str(make_url(url).database))
    with closing(connected(url)) as connection:
        connection.execute("SELECT 1").close()
        file.rename(file.with_suffix(".moved"))
        with pytest.raises(StoreUnavailableError, match="is not there any more"):
            delivery.enlist(connection)


@pytest.mark.parametrize("url", ["sqlite_url"], indirect=True)
def test_factories_and_converters_of_sqlite3(url: str, delivery: DelayedDelivery) -> None:
    options = {"detect_types": sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES, "isolation_level": None}
    with closing(connected(url, **options)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        connection.execute("BEGIN")
        enlisted = delivery.enlist(connection)
        sent = enlisted.send("billing", b"x", delay=60)
        found = enlisted.get(sent)
        assert found is not None
        connection.execute("COMMIT")
        assert connection.row_factory is sqlite3.Row
        assert connection.text_factory is bytes
        assert connection.isolation_level is None
    assert delivery.get(sent) == found


def test_a_connection_that_commits_at_once_is_refused(url: str, delivery: DelayedDelivery) -> None:
    with closing(connected(url, **({"isolation_level": None} if "sqlite" in url else {"autocommit": True}))) as one:
        with pytest.raises(ConfigurationError, match="begin a transaction first"):
            delivery.enlist(one)
        one.cursor().execute("BEGIN")
        enlisted = delivery.enlist(one)
        enlisted.send("billing", b"", delay=60)
        one.rollback()
        with pytest.raises(ConfigurationError, match="begin a transaction first"):
            enlisted.send("billing", b"", delay=60)
    assert delivery.count() == 0


def test_another_database_is_refused(url: str, delivery: DelayedDelivery, request: pytest.FixtureRequest) -> None:
    elsewhere = another(url, request)
    with closing(connected(elsewhere)) as connection:
        with pytest.raises(ConfigurationError, match="uses another database than the store"):
            delivery.enlist(connection)
        connection.rollback()


def test_another_driver_is_refused(delivery: DelayedDelivery, url: str) -> None:
    other = sqlite3.connect(":memory:") if "sqlite" not in url else None
    if other is not None:
        with closing(other), pytest.raises(ConfigurationError, match="use the same driver for both"):
            delivery.enlist(other)


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_one_server_by_two_names(url: str, delivery: DelayedDelivery) -> None:
    named = make_url(url).set(host="localhost").render_as_string(hide_password=False)
    with closing(connected(named)) as connection:
        delivery.enlist(connection).send("billing", b"", delay=60)
        connection.commit()
    assert delivery.count() == 1


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_a_lost_connection(url: str, delivery: DelayedDelivery) -> None:
    with closing(connected(url)) as connection, closing(connected(url, autocommit=True)) as other:
        enlisted = delivery.enlist(connection)
        enlisted.send("billing", b"", delay=60)
        other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        with pytest.raises(StoreUnavailableError, match="cannot be used now"):
            enlisted.send("billing", b"", delay=60)
        with pytest.raises(StoreError, match="begin another"):
            enlisted.send("billing", b"", delay=60)
    assert delivery.count() == 0


def test_a_closed_connection(url: str, delivery: DelayedDelivery) -> None:
    one = connected(url)
    enlisted = delivery.enlist(one)
    one.close()
    with pytest.raises(StoreError, match="lost or closed"):
        enlisted.get("paid")
    with pytest.raises(StoreError, match="lost or closed"):
        delivery.enlist(one)


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_a_pipeline_has_no_answers(delivery: DelayedDelivery, connection: Any) -> None:
    enlisted = delivery.enlist(connection)
    enlisted.send("billing", b"", delay=60, message_id="before")
    with connection.pipeline():
        for call in (lambda: enlisted.get("before"), lambda: enlisted.send("billing", b"", delay=60)):
            with pytest.raises(ConfigurationError, match="in a pipeline"):
                call()
        connection.execute("INSERT INTO orders VALUES (1)")
    assert enlisted.get("before") is not None
    connection.commit()
    assert delivery.count() == orders(connection) == 1


def another(url: str, request: pytest.FixtureRequest) -> str:
    """The URL of another database of the same kind."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return f"{url}.other"
    name = "information_schema" if parsed.get_backend_name() != "postgresql" else "postgres"
    return parsed.set(database=name).render_as_string(hide_password=False)
