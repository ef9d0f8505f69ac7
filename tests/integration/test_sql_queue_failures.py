"""The SQL queue where the database undoes a whole transaction, keeps locks for long, or goes away."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from delaystore.dispatcher import Dispatcher
from delaystore.errors import TransportError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.integration.sql_stores import message, opened

NOW = datetime(2020, 1, 1, tzinfo=UTC)
DEADLINE = 60
"""Seconds; what is waited for takes one or two, or far longer than this."""
FOREVER = 600
"""Seconds that connections wait for a lock where nothing limits them."""
EXACTLY_ONCE = DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE)
ONE_TO_EACH = [message(NOW, message_id="A", destination="a"), message(NOW, 1, message_id="B", destination="b")]


def with_queues(url_or_engine: str | Engine) -> SqlQueueTransport:
    transport = SqlQueueTransport(url_or_engine)
    for queue in ("a", "b", "error"):
        transport.declare(queue)
    return transport


def waiting_ids(engine: Engine, table: str) -> list[str]:
    with engine.connect() as connection:
        ids = connection.execute(text(f"select message_id from {table} order by message_id")).scalars()
        return [one.decode() if isinstance(one, bytes) else one for one in ids]


def are_unconfirmed(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome.kind is OutcomeKind.UNCONFIRMED and outcome.reason for outcome in outcomes)


@contextmanager
def deadlocked(url: str, sending: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Run `sending`, which inserts into a, then b, against a consumer that locks b, then a, and has more to lose."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("create table work (n int primary key)"))
    with ThreadPoolExecutor(1) as pool, engine.connect() as consumer:
        consumer.execute(text("insert into work values (:n)"), [{"n": number} for number in range(1000)])
        consumer.execute(text("select * from b_queue for update")).all()
        sender = pool.submit(sending)
        wait_until_running(engine, "INSERT INTO %b_queue%")
        consumer.execute(text("select * from a_queue for update")).all()
        consumer.rollback()
        yield sender
    engine.dispose()


def wait_until_running(engine: Engine, statement: str) -> None:
    query = text("select count(*) from information_schema.processlist where info like :info and db = database()")
    end = time.monotonic() + DEADLINE
    with engine.connect() as connection:
        while not connection.execute(query, {"info": statement}).scalar_one():
            assert time.monotonic() < end, f"nobody runs {statement}"
            time.sleep(0.02)


def test_a_deadlock_that_undoes_a_shared_transaction_raises(mariadb_url: str) -> None:
    with opened(mariadb_url) as store:
        store.store_many(ONE_TO_EACH)
        transport = with_queues(store.engine)

        def send() -> None:
            with store.transaction() as tx:
                batch = tx.fetch_due(store.now(), 10)
                transport.send(batch, tx, DEADLINE)
                tx.remove_many(batch)

        with deadlocked(mariadb_url, send) as sender, pytest.raises(TransportError, match="Deadlock found"):
            sender.result(DEADLINE)
        assert waiting_ids(store.engine, "sales_delayed") == ["A", "B"]
        assert waiting_ids(store.engine, "a_queue") == []


def test_a_deadlock_leaves_the_whole_batch_unconfirmed(mariadb_url: str) -> None:
    transport, engine = with_queues(mariadb_url), create_engine(mariadb_url)
    with deadlocked(mariadb_url, lambda: transport.send(ONE_TO_EACH, None, DEADLINE)) as sender:
        assert are_unconfirmed(sender.result(DEADLINE))
    assert waiting_ids(engine, "a_queue") + waiting_ids(engine, "b_queue") == []
    engine.dispose()
    transport.close()


def test_a_dispatcher_loses_nothing_in_a_deadlock(mariadb_url: str) -> None:
    with opened(mariadb_url) as store:
        store.initialize("sales", TransactionMode.TRANSACTION_SCOPE)
        store.store_many(ONE_TO_EACH)
        transport = with_queues(store.engine)
        dispatcher = Dispatcher(store, transport, EXACTLY_ONCE)
        with deadlocked(mariadb_url, dispatcher.dispatch_due) as sender:
            sender.result(DEADLINE)
        end = time.monotonic() + DEADLINE
        while store.count() and time.monotonic() < end:
            dispatcher.dispatch_due()
        assert waiting_ids(store.engine, "a_queue") == ["A"]
        assert waiting_ids(store.engine, "b_queue") == ["B"]


@pytest.fixture
def full(sqlite_url: str) -> Iterator[tuple[SqlDelayedMessageStore, SqlQueueTransport, list[DelayedMessage]]]:
    """A store and queues on a disk with room for the first of the messages, not for the others."""
    with opened(sqlite_url) as store:
        messages = [ONE_TO_EACH[0]]
        messages += [message(NOW, 1, message_id=f"B{n}", destination="b", body=bytes(300_000)) for n in range(3)]
        store.store_many(messages)
        transport = with_queues(store.engine)
        with store.engine.connect() as connection:
            pages = connection.execute(text("pragma page_count")).scalar_one()

        def limit_size(connection: Any, *_: object) -> None:
            connection.execute(f"pragma max_page_count = {pages + 100}")

        event.listen(store.engine, "checkout", limit_size)
        yield store, transport, messages


def test_a_full_disk_that_undoes_a_shared_transaction_raises(
    full: tuple[SqlDelayedMessageStore, SqlQueueTransport, list[DelayedMessage]],
) -> None:
    store, transport, _ = full
    with pytest.raises(TransportError, match="full"), store.transaction() as tx:
        batch = tx.fetch_due(store.now(), 10)
        transport.send(batch, tx, 10)
        tx.remove_many(batch)
    assert waiting_ids(store.engine, "sales_delayed") == ["A", "B0", "B1", "B2"]
    assert waiting_ids(store.engine, "a_queue") == []


def test_a_full_disk_leaves_the_whole_batch_unconfirmed(
    full: tuple[SqlDelayedMessageStore, SqlQueueTransport, list[DelayedMessage]],
) -> None:
    store, transport, messages = full
    assert are_unconfirmed(transport.send(messages, None, 10))
    assert waiting_ids(store.engine, "a_queue") + waiting_ids(store.engine, "b_queue") == []
    assert transport.send(messages[:1], None, 10)[0].kind is OutcomeKind.DELIVERED


def test_a_failed_look_for_a_queue_raises_where_rows_are_in_a_shared_transaction(mariadb_url: str) -> None:
    with opened(mariadb_url) as store, create_engine(mariadb_url).connect() as locker:
        store.store_many(ONE_TO_EACH)
        transport = with_queues(store.engine)
        locker.execute(text("lock tables b_queue write"))
        with pytest.raises(TransportError, match="Lock wait timeout"), store.transaction() as tx:
            batch = tx.fetch_due(store.now(), 10)
            connection: Connection = tx.connection  # type: ignore[attr-defined]  # a bound SQL store has one
            connection.execute(text("set session lock_wait_timeout = 1"))
            transport.send(batch, tx, 10)
        locker.execute(text("unlock tables"))
        assert waiting_ids(store.engine, "a_queue") == []
        assert store.count() == 2
        locker.engine.dispose()


@contextmanager
def lock_on(engine: Engine, statement: str) -> Iterator[None]:
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
        yield
        connection.rollback()
        if statement.startswith("lock"):
            connection.exec_driver_sql("unlock tables")


@pytest.mark.parametrize("statement", ["lock tables a_queue write", "select * from a_queue for update"])
def test_a_send_on_mariadb_waits_for_a_lock_no_longer_than_its_timeout(mariadb_url: str, statement: str) -> None:
    with_queues(mariadb_url).close()
    limits = f"set session lock_wait_timeout = {FOREVER}, session innodb_lock_wait_timeout = {FOREVER}"
    patient, engine = (
        create_engine(mariadb_url, pool_size=1, max_overflow=0, connect_args={"init_command": limits}),
        create_engine(mariadb_url),
    )
    transport = SqlQueueTransport(patient)
    with ThreadPoolExecutor(1) as pool, lock_on(engine, statement):
        assert are_unconfirmed(pool.submit(transport.send, ONE_TO_EACH, None, 0.5).result(DEADLINE))
    with patient.connect() as connection:
        query = "select @@session.lock_wait_timeout, @@session.innodb_lock_wait_timeout"
        assert connection.exec_driver_sql(query).one() == (FOREVER, FOREVER)
    assert [one.kind for one in transport.send(ONE_TO_EACH, None, 10)] == [OutcomeKind.DELIVERED] * 2
    for one in (patient, engine):
        one.dispose()


def test_a_send_on_sqlite_waits_for_another_writer_no_longer_than_its_timeout(sqlite_url: str) -> None:
    with_queues(sqlite_url).close()
    patient, engine = create_engine(sqlite_url, connect_args={"timeout": FOREVER}), create_engine(sqlite_url)
    transport = SqlQueueTransport(patient)
    with ThreadPoolExecutor(1) as pool, lock_on(engine, "begin immediate"):
        assert are_unconfirmed(pool.submit(transport.send, ONE_TO_EACH, None, 0.1).result(DEADLINE))
    assert [one.kind for one in transport.send(ONE_TO_EACH, None, 10)] == [OutcomeKind.DELIVERED] * 2
    with patient.connect() as connection:
        assert connection.exec_driver_sql("pragma busy_timeout").scalar_one() == FOREVER * 1000
    for one in (patient, engine):
        one.dispose()


def test_a_connection_lost_after_the_commit_does_not_hide_what_was_delivered(mariadb_url: str) -> None:
    transport, engine, killer = with_queues(mariadb_url), create_engine(mariadb_url), create_engine(mariadb_url)
    killed: list[int] = []

    def kill(connection: Connection, _cursor: Any, statement: str, *_: object) -> None:
        session = connection.connection.dbapi_connection.thread_id()  # type: ignore[union-attr]  # PyMySQL's
        if statement.startswith("SET SESSION innodb") and "= 10," not in statement:
            killed.append(session)
            with killer.connect() as other:
                other.exec_driver_sql(f"kill {session}")

    event.listen(engine, "before_cursor_execute", kill)
    outcomes = SqlQueueTransport(engine).send(ONE_TO_EACH, None, 10)
    assert [one.kind for one in outcomes] == [OutcomeKind.DELIVERED] * 2
    assert killed
    assert waiting_ids(engine, "a_queue") == ["A"]
    for one in (engine, killer):
        one.dispose()
    transport.close()
