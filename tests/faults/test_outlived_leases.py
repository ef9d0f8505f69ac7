"""A dispatcher on SQLite is stopped for longer than its lease, and goes on when others have gone on without it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text, update

from delaystore.dispatcher import Dispatcher
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore, ManagementOutcome
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from delaystore.transports.abc import Outcome
from tests.faults.backlog import DESTINATION, ENDPOINT, message, open_store

MODES = [TransactionMode.RECEIVE_ONLY, TransactionMode.TRANSACTION_SCOPE]
AN_HOUR = timedelta(hours=1)


class StoppedTransport(SqlQueueTransport):
    """Sends; then, or before where sending is part of the transaction, its process is stopped for a while.

    `meanwhile`: what others do in that time.
    """

    def __init__(self, url: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(url)
        self._meanwhile = meanwhile

    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        if transaction is not None:
            self._meanwhile()
        outcomes = super().send(messages, transaction, timeout)
        if transaction is None:
            self._meanwhile()
        return outcomes


@pytest.fixture
def store(sqlite_url: str) -> Iterator[SqlDelayedMessageStore]:
    store = open_store(sqlite_url, TransactionMode.TRANSACTION_SCOPE)
    yield store
    store.close()


def end_leases(store: SqlDelayedMessageStore) -> None:
    with store.engine.begin() as connection:
        ended = connection.execute(update(store.table).values(claimed_until=datetime.now(UTC)))
        assert ended.rowcount


def dispatch(url: str, mode: TransactionMode, meanwhile: Callable[[], None]) -> None:
    """One pass of a dispatcher that is stopped in its middle."""
    store, transport = open_store(url, mode), StoppedTransport(url, meanwhile)
    Dispatcher(store, transport, DelayedDeliverySettings(transaction_mode=mode), ENDPOINT).dispatch_due()
    transport.close()
    store.close()


def arrived(url: str) -> list[bytes]:
    transport = SqlQueueTransport(url)
    with transport.receive(DESTINATION, 100) as messages:
        bodies = [each.body for each in messages]
    transport.close()
    return bodies


@pytest.fixture(autouse=True)
def _destination(sqlite_url: str) -> None:
    transport = SqlQueueTransport(sqlite_url)
    transport.declare(DESTINATION)
    transport.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_message_sent_again_under_the_id_arrives(
    store: SqlDelayedMessageStore, sqlite_url: str, mode: TransactionMode
) -> None:
    first, second = message(message_id="a", body=b"first"), message(message_id="a", body=b"second")

    def meanwhile() -> None:
        end_leases(store)
        dispatch(sqlite_url, mode, lambda: None)
        store.store(second)

    store.store(first)
    dispatch(sqlite_url, mode, meanwhile)
    assert store.get("a") == second
    dispatch(sqlite_url, mode, lambda: None)
    assert store.count() == 0
    copies = 1 if mode is TransactionMode.TRANSACTION_SCOPE else 2
    assert arrived(sqlite_url) == [*[b"first"] * copies, b"second"]


@pytest.mark.parametrize("mode", MODES)
def test_a_rescheduled_message_waits_until_its_new_time(
    store: SqlDelayedMessageStore, sqlite_url: str, mode: TransactionMode
) -> None:
    later = store.now() + AN_HOUR

    def meanwhile() -> None:
        end_leases(store)
        assert store.reschedule("a", later) is ManagementOutcome.DONE

    store.store(message(message_id="a"))
    dispatch(sqlite_url, mode, meanwhile)
    waiting = store.get("a")
    assert waiting is not None
    assert (waiting.due_time, waiting.failure_count) == (later, 0)


def test_a_rescheduled_message_is_next_at_its_new_time_though_an_older_release_kept_its_lease(
    store: SqlDelayedMessageStore,
) -> None:
    message_id, later = "a", store.now() + AN_HOUR
    store.store(message(message_id=message_id, due_time=later))
    with store.engine.begin() as connection:
        lease = f"UPDATE \"{store.table.name}\" SET claimed_by = 'gone', claimed_until = '2020-01-01 00:00:00.000000'"
        connection.execute(text(lease))
    assert store.next() == later
