"""The main job on a SQLite file and the SQL queue in it: enlisting, and exactly once."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher, DispatchReport
from delaystore.errors import ConfigurationError, InvalidMessageError, UnsupportedModeError
from delaystore.settings import TransactionMode
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports.memory import InMemoryTransport
from delaystore.transports.sql_queue import SqlQueueTransport
from tests.dispatching import message, settings, wait_until

EXACTLY_ONCE = settings(transaction_mode=TransactionMode.TRANSACTION_SCOPE)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[SqlDelayedMessageStore]:
    store = SqlDelayedMessageStore(sqlite_url)
    yield store
    store.close()


@pytest.fixture
def transport(store: SqlDelayedMessageStore) -> SqlQueueTransport:
    transport = SqlQueueTransport(store.engine)
    transport.declare("billing")
    return transport


def received(transport: SqlQueueTransport, queue: str = "billing") -> list[bytes]:
    with transport.receive(queue, 1000) as messages:
        return [one.body for one in messages]


@pytest.mark.parametrize("mode", list(TransactionMode))
def test_messages_wait_and_arrive_in_every_mode(
    store: SqlDelayedMessageStore, transport: SqlQueueTransport, mode: TransactionMode
) -> None:
    with DelayedDelivery("sales", store, transport, settings(transaction_mode=mode)) as delivery:
        for number in range(3):
            delivery.send("billing", b"%d" % number, delay=0.05 * number)
        delivery.send("nowhere", b"lost", delay=0)
        wait_until(lambda: delivery.health().delivered == 3 and delivery.health().moved_to_error_queue == 1)
        assert delivery.count() == 0
        assert received(transport) == [b"0", b"1", b"2"]
        assert received(transport, "error") == [b"lost"]


def test_what_is_sent_in_a_transaction_is_sent_when_it_commits(
    store: SqlDelayedMessageStore, transport: SqlQueueTransport
) -> None:
    with DelayedDelivery("sales", store, transport, settings(poll_interval=3600)) as delivery:
        delivery.count()
        with Session(store.engine) as session, session.begin():
            enlisted = delivery.enlist(session)
            enlisted.send("billing", b"first", delay=0)
            past = datetime.now(UTC) - timedelta(seconds=1)
            assert enlisted.send_many(message(str(number), due_time=past) for number in range(3)) == 3
        wait_until(lambda: delivery.health().delivered == 4)


def test_what_is_sent_in_a_transaction_that_is_undone_was_never_sent(store: SqlDelayedMessageStore) -> None:
    delivery = DelayedDelivery("sales", store)
    delivery.count()
    with store.engine.connect() as connection:
        delivery.enlist(connection).send("billing", b"", delay=0)
        connection.rollback()
    assert delivery.count() == 0
    with store.engine.begin() as connection:
        delivery.enlist(connection).send("billing", b"", delay=0)
    assert delivery.count() == 1


def test_a_senseless_message_harms_no_transaction(store: SqlDelayedMessageStore) -> None:
    delivery = DelayedDelivery("sales", store)
    delivery.count()
    with store.engine.begin() as connection:
        enlisted = delivery.enlist(connection)
        enlisted.send("billing", b"", delay=0)
        with pytest.raises(InvalidMessageError):
            enlisted.send("billing", b"", delay=-1)
    assert delivery.count() == 1


@pytest.mark.parametrize("lease", [timedelta(0), -timedelta(seconds=1), timedelta.max, 60], ids=str)
def test_a_lease_that_is_no_length_of_time_is_refused(sqlite_url: str, lease: Any) -> None:
    with pytest.raises(ConfigurationError, match="lease must be"):
        SqlDelayedMessageStore(sqlite_url, lease=lease)


def test_exactly_once_needs_a_transport_in_the_stores_database(store: SqlDelayedMessageStore) -> None:
    with pytest.raises(UnsupportedModeError, match="InMemoryTransport with SqlDelayedMessageStore"):
        DelayedDelivery("sales", store, InMemoryTransport(), EXACTLY_ONCE)


def test_exactly_once_undoes_the_sends_when_a_claim_was_lost(sqlite_url: str) -> None:
    class StoreOfAnother(SqlDelayedMessageStore):
        lost = True

        @contextmanager
        def transaction(self) -> Iterator[Any]:
            with super().transaction() as tx:
                if self.lost:
                    tx.remove_ended = lambda messages, *_: len(messages) - 1  # type: ignore[method-assign]
                yield tx

    store = StoreOfAnother(sqlite_url)
    transport = SqlQueueTransport(store.engine)
    transport.declare("billing")
    dispatcher = Dispatcher(store, transport, EXACTLY_ONCE, endpoint="sales")
    store.setup_infrastructure()
    past = datetime.now(UTC) - timedelta(seconds=1)
    store.store_many([message("a", due_time=past), message("b", due_time=past)])
    assert dispatcher.dispatch_due() == DispatchReport()
    assert received(transport) == []
    store.lost = False
    assert dispatcher.dispatch_due().delivered == 2
    assert sorted(received(transport)) == [b"a", b"b"]
    store.close()


def test_exactly_once_undoes_everything_when_the_transport_raises(
    store: SqlDelayedMessageStore, transport: SqlQueueTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = Dispatcher(store, transport, EXACTLY_ONCE, endpoint="sales")
    store.setup_infrastructure()
    store.store(message("a", due_time=datetime.now(UTC) - timedelta(seconds=1)))
    with monkeypatch.context() as patched:

        def send(*arguments: Any) -> Any:
            original(*arguments)
            raise RuntimeError("a bug")

        original = transport.send
        patched.setattr(transport, "send", send)
        assert dispatcher.dispatch_due() == DispatchReport()
    assert dispatcher.health().breakers["dispatch"] == "armed"
    assert received(transport) == []
    assert dispatcher.dispatch_due().delivered == 1
    assert received(transport) == [b"a"]
