"""PostgreSQL's databases, roles and engines whose default isolation level is another one."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from delaystore.errors import DuplicateMessageError
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports.sql_queue import SqlQueueTransport
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQLDatabases

ENGINES: dict[str, Callable[[str], Any]] = {
    "a URL": lambda url: url,
    "an Engine": create_engine,
    "an Engine of another level": lambda url: create_engine(url, isolation_level="REPEATABLE READ"),
    "an Engine of a level by options": lambda url: create_engine(url).execution_options(isolation_level="SERIALIZABLE"),
}
LEVEL = text("SELECT current_setting('transaction_isolation')")
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")


@pytest.fixture
def url(postgresql: PostgreSQLDatabases) -> Iterator[str]:
    """A database whose sessions begin transactions in another isolation level."""
    url = postgresql.create_database(settings={"default_transaction_isolation": "serializable"})
    yield url
    postgresql.drop_database(url)


@pytest.fixture(params=list(ENGINES.values()), ids=list(ENGINES))
def database(request: pytest.FixtureRequest, url: str) -> Iterator[Any]:
    """A URL, or an Engine, of that database."""
    database = request.param(url)
    yield database
    if database is not url:
        database.dispose()


@pytest.fixture
def store(database: Any) -> Iterator[SqlDelayedMessageStore]:
    with opened(database) as store:
        yield store


def test_what_send_stores_is_committed(store: SqlDelayedMessageStore) -> None:
    store.store(sent := message(store.now(), 3600))
    assert store.get(sent.message_id) == sent


def test_two_dispatchers_take_turns(store: SqlDelayedMessageStore) -> None:
    store.store_many([message(store.now(), -1, str(number)) for number in range(4)])
    now = store.now()
    with store.transaction() as late:
        assert late.count() == 4  # above READ COMMITTED it would see this for as long as it lasts
        with store.transaction() as early:
            assert early.remove_many(early.fetch_due(now, 3)) == 3
        assert late.remove_many(late.fetch_due(now, 5)) == 1
        assert late.connection.execute(LEVEL).scalar() == "read committed"


def test_a_sender_waits_for_another_one_of_the_same_id(store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), 3600))  # so that the clock is known, and a connection is there
    raised: list[BaseException] = []

    def send() -> None:
        try:
            store.store(message(store.now(), 3600, "same"))
        except BaseException as error:
            raised.append(error)

    with store.transaction() as first:
        first.store(message(store.now(), 3600, "same"))
        second = threading.Thread(target=send)
        second.start()
        with store.engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            wait_until(lambda: connection.execute(WAITING).scalar() == 1)
    second.join(30)
    assert [type(error) for error in raised] == [DuplicateMessageError]


def test_a_sql_queue_reads_and_writes_what_is_committed(database: Any, store: SqlDelayedMessageStore) -> None:
    transport = SqlQueueTransport(database)
    transport.declare("billing")
    sent = [message(store.now(), message_id=str(number)) for number in range(2)]
    assert {outcome.kind.value for outcome in transport.send(sent, None, 5)} == {"delivered"}
    with transport.receive("billing", limit=1) as first, transport.receive("billing", limit=2) as second:
        assert [len(first), len(second)] == [1, 1]
    with transport.receive("billing", limit=2) as rest:
        assert not rest
    transport.close()


def test_an_enlisted_send_leaves_the_callers_isolation_level_alone(url: str, store: SqlDelayedMessageStore) -> None:
    engine = create_engine(url, isolation_level="SERIALIZABLE")
    with engine.begin() as connection:
        store.enlist(connection).store(message(store.now(), 3600))
        assert connection.execute(LEVEL).scalar() == "serializable"
    assert store.count() == 1
    engine.dispose()
