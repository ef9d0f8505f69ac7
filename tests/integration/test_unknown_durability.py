"""Commits of PostgreSQL whose wait for the synchronous standby somebody cancels."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, make_url, text

from delaystore import DelayedDelivery
from delaystore.errors import DurabilityUnknownError
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.sql_queue import SqlQueueTransport
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQL
from tests.servers.postgresql import connect

CANCEL = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def database(private_postgresql: PostgreSQL) -> Iterator[str]:
    """The URL of a database with the tables of the endpoint `sales`."""
    url = private_postgresql.create_database()
    with opened(url):
        yield url
    private_postgresql.drop_database(url)


@contextmanager
def absent_standby(server: PostgreSQL) -> Iterator[None]:
    """Every commit in the block waits for a standby that is not there, until an administrator cancels the wait."""
    over = threading.Event()

    def cancel() -> None:
        with connect(make_url(server.admin_url)) as connection:
            while not over.wait(0.05):
                connection.execute(CANCEL)

    def set_synchronous(names: str) -> None:
        with connect(make_url(server.admin_url)) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
            connection.execute("SELECT pg_reload_conf()")

    set_synchronous("absent")
    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        wait_until(lambda: commit_waits(server), "commits wait")
        yield
    finally:
        over.set()
        canceller.join()
        set_synchronous("")


def commit_waits(server: PostgreSQL) -> bool:
    """Whether a commit waited for the standby: the server takes a moment to heed the setting."""
    told: list[object] = []
    with connect(make_url(server.admin_url)) as connection:
        connection.add_notice_handler(told.append)
        connection.execute("COMMENT ON SCHEMA public IS 'written'")
    return bool(told)


@pytest.fixture(params=["a URL", "an Engine"])
def store(request: pytest.FixtureRequest, database: str) -> Iterator[SqlDelayedMessageStore]:
    engine = create_engine(database)
    store = SqlDelayedMessageStore(database if request.param == "a URL" else engine)
    store.initialize("sales", TransactionMode.NONE)
    yield store
    store.close()
    engine.dispose()


@pytest.mark.long_runs(after=4)
@pytest.mark.parametrize(
    ("write", "left"),
    [
        (lambda store: store.store(message(store.now(), 3600)), 2),
        (lambda store: store.store_many([message(store.now(), 3600)]), 2),
        (lambda store: store.cancel("waiting"), 0),
        (lambda store: store.reschedule("waiting", store.now()), 1),
    ],
    ids=["store", "store_many", "cancel", "reschedule"],
)
def test_what_is_committed_and_perhaps_not_replicated_is_told(
    private_postgresql: PostgreSQL,
    store: SqlDelayedMessageStore,
    write: Callable[[SqlDelayedMessageStore], object],
    left: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.store(message(store.now(), 3600, "waiting"))
    with absent_standby(private_postgresql), caplog.at_level(logging.WARNING, "delaystore.stores.sql"):
        with pytest.raises(DurabilityUnknownError, match="it is committed"):
            write(store)
        assert "might not have been replicated to the standby" in caplog.text
    assert store.count() == left
    assert store.cancel("nobody") is ManagementOutcome.NOT_FOUND  # by the same connection


@pytest.mark.parametrize("kind", ["a URL", "an Engine"])
def test_a_database_that_hides_warnings_hides_no_unknown_durability(private_postgresql: PostgreSQL, kind: str) -> None:
    url = private_postgresql.create_database(settings={"client_min_messages": "error"})
    engine = create_engine(url)
    store = SqlDelayedMessageStore(url if kind == "a URL" else engine)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    with absent_standby(private_postgresql):
        for write in (store.store, lambda each: store.store_many([each])):
            with pytest.raises(DurabilityUnknownError, match="it is committed"):
                write(message(store.now(), 3600))
    assert store.count() == 2
    with engine.connect() as connection:
        assert connection.execute(text("SHOW client_min_messages")).scalar() == "error"
    store.close()
    engine.dispose()
    private_postgresql.drop_database(url)


def test_a_dispatched_message_counts_as_removed(
    private_postgresql: PostgreSQL, store: SqlDelayedMessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.store(message(store.now(), -1))
    with absent_standby(private_postgresql), caplog.at_level(logging.WARNING, "delaystore.stores.sql"):
        with store.transaction() as transaction:
            assert transaction.remove_many(transaction.fetch_due(store.now(), 5)) == 1
        assert "might not have been replicated to the standby" in caplog.text
    assert store.count() == 0


def test_a_sender_is_told_and_its_breaker_is_not(private_postgresql: PostgreSQL, store: SqlDelayedMessageStore) -> None:
    delivery = DelayedDelivery("sales", store)
    delivery.count()
    with absent_standby(private_postgresql), pytest.raises(DurabilityUnknownError) as caught:
        delivery.send("billing", b"pay", delay=3600)
    (stored,) = delivery.list().messages
    assert str(caught.value).startswith(f"the message {stored.message_id!r}: it is committed")
    assert delivery.health().breakers["store"] == "disarmed"


def test_what_a_sql_queue_may_lose_stays_in_the_store(private_postgresql: PostgreSQL, database: str) -> None:
    transport = SqlQueueTransport(database)
    transport.declare("billing")
    with opened(database) as store:
        sent = message(store.now())
    with absent_standby(private_postgresql):
        (outcome,) = transport.send([sent], None, 5)
    assert outcome.kind is OutcomeKind.UNCONFIRMED
    assert "synchronous standby" in outcome.reason
    transport.close()
