"""How many connections the SQL store takes: one at a time, whatever is asked of it."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import Engine, create_engine, event, func, select, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from delaystore.calls import Call, Question
from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports import InMemoryTransport, SqlQueueTransport
from tests.dispatching import PATIENCE, wait_until
from tests.integration.sql_stores import message


@pytest.fixture(params=["postgresql_url", "mariadb_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def single(url: str) -> Iterator[Engine]:
    """An engine with one connection; whoever wants a second one fails after a second."""
    engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=1)
    yield engine
    engine.dispose()


@pytest.fixture
def shared(url: str) -> Iterator[Engine]:
    """An engine with one connection, which a dispatcher's threads and the test take in turn.

    On a busy machine a turn may take seconds. A thread that wants a second connection still waits in vain: each pass
    then takes longer than the test waits.
    """
    engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=PATIENCE)
    yield engine
    engine.dispose()


def test_one_connection_is_enough_for_whoever_sends(single: Engine) -> None:
    delivery = DelayedDelivery("sales", SqlDelayedMessageStore(single))
    with delivery:
        with Session(single) as session, session.begin():
            sent = [delivery.enlist(session).send("billing", b"", delay=60)]
            assert delivery.enlist(session).send_many(ten(delivery)) == 10
        with single.begin() as connection:
            sent.append(delivery.enlist(connection).send("billing", b"", delay=60))
        forget_the_clock(delivery)
        assert delivery.send_many(ten(delivery)) == 10
        forget_the_clock(delivery)
        sent.append(delivery.send("billing", b"", delay=60))
        for waiting in delivery.list().messages:
            forget_the_clock(delivery)
            assert delivery.reschedule(waiting.message_id, delay=120) is ManagementOutcome.DONE
            assert delivery.cancel(waiting.message_id) is ManagementOutcome.DONE
        assert len(sent) == 3
        assert delivery.count() == 0


def test_one_connection_is_enough_for_a_dispatcher(shared: Engine) -> None:
    transport = InMemoryTransport(auto_declare=True)
    with DelayedDelivery("sales", SqlDelayedMessageStore(shared), transport) as delivery:
        delivery.send_many(ten(delivery, due_in=0.1))
        wait_until(lambda: delivery.count() == 0, "all are forwarded")
        assert delivery.health().store is None


def test_one_connection_is_enough_for_exactly_once(shared: Engine) -> None:
    queues = SqlQueueTransport(shared)
    queues.declare("billing")
    exactly_once = DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE)
    with DelayedDelivery("sales", SqlDelayedMessageStore(shared), queues, exactly_once) as delivery:
        delivery.send_many(ten(delivery, due_in=0.1))
        wait_until(lambda: delivery.count() == 0, "all are forwarded")


def test_fifteen_transactions_share_five_connections(url: str) -> None:
    """Each sends with a delay while all five connections are in use."""
    engine = create_engine(url, pool_size=5, max_overflow=0, pool_timeout=5)
    delivery = DelayedDelivery("sales", SqlDelayedMessageStore(engine))
    delivery.setup_infrastructure()
    five = threading.Barrier(5)

    def work(_: int) -> None:
        with Session(engine) as session, session.begin():
            enlisted = delivery.enlist(session)
            session.connection()
            five.wait(30)
            enlisted.send("billing", b"", delay=60)

    with ThreadPoolExecutor(15) as threads:
        list(threads.map(work, range(15)))
    assert delivery.count() == 15
    delivery.close()
    engine.dispose()


def ten(delivery: DelayedDelivery, due_in: float = 60) -> list[DelayedMessage]:
    now = delivery._store.now()
    return [message(now, due_in) for _ in range(10)]


def forget_the_clock(delivery: DelayedDelivery) -> None:
    """As after ten seconds: the clock is asked again."""
    store = delivery._store
    assert isinstance(store, SqlDelayedMessageStore)
    store._parts.clock._shared.forget()
    with store.transaction() as transaction:
        transaction.connection.info.clear()


@pytest.mark.long_runs("mariadb_url")
def test_a_call_that_takes_too_long_ends_nobody_elses_statement(single: Engine) -> None:
    """It has given its connection back, and waits for one, while somebody else uses that very one."""
    store = SqlDelayedMessageStore(single)
    store.initialize("sales", TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    pool = single.pool
    assert isinstance(pool, QueuePool)
    with ThreadPoolExecutor(1) as somebody_else:
        with pytest.raises(StoreUnavailableError, match="not answered within"), Call("counting", limit=0.3):
            store.now()
            slept = somebody_else.submit(sleep_on_the_server, single, 3)
            wait_until(lambda: pool.checkedout() == 1, "somebody else has the connection")
            store.count()  # in vain, for a second
        assert slept.result() == "slept"


def sleep_on_the_server(engine: Engine, seconds: int) -> str:
    function = func.pg_sleep if engine.dialect.name == "postgresql" else func.sleep
    with engine.connect() as connection:
        connection.execute(select(function(seconds)))
    return "slept"


def test_a_connection_in_use_when_the_store_is_closed_is_closed_once_it_is_free(url: str) -> None:
    store = SqlDelayedMessageStore(url)
    store.initialize("sales", TransactionMode.RECEIVE_ONLY)
    is_postgresql = store.engine.dialect.name == "postgresql"
    pool = store.engine.pool  # without a reference, the pool would close its connections at some time
    with store.transaction() as bound:
        own_id = func.pg_backend_pid() if is_postgresql else func.connection_id()
        session = bound.connection.execute(select(own_id)).scalar_one()
        store.close()
    sessions = "SELECT pid FROM pg_stat_activity" if is_postgresql else "SELECT id FROM information_schema.processlist"
    other = SqlDelayedMessageStore(url)
    with closing(other), other.engine.connect() as connection:
        wait_until(lambda: session not in connection.execute(text(sessions)).scalars().all(), "it is closed")
    del pool


@pytest.fixture(params=["postgresql_url", "sqlite_url"])
def closable(request: pytest.FixtureRequest) -> Iterator[tuple[SqlDelayedMessageStore, Counter[str]]]:
    """A store, and how many connections it has made and closed."""
    store, seen = SqlDelayedMessageStore(str(request.getfixturevalue(request.param))), Counter[str]()
    for end in ("connect", "close"):
        event.listen(store.engine, end, lambda *_, end=end: seen.update([end]))
    store.initialize("sales", TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    yield store, seen
    store.close()


def test_a_connection_in_use_is_not_left_to_the_garbage_collector(
    closable: tuple[SqlDelayedMessageStore, Counter[str]],
) -> None:
    store, seen = closable
    pool = store.engine.pool  # without a reference, the pool would close its connections at some time
    with store.transaction():
        store.close()
    assert seen["connect"] == seen["close"]
    del pool


def test_nor_is_one_that_was_being_made_when_the_store_was_closed(
    closable: tuple[SqlDelayedMessageStore, Counter[str]],
) -> None:
    """Its thread has found the engine's pool before, and connects to that."""
    store, seen = closable
    pool = store.engine.pool
    store.close()
    pool.connect().close()
    assert seen["connect"] == seen["close"]


def test_a_connection_made_too_late_is_closed_once_it_is_free(url: str) -> None:
    """As by `delaystore status`, which asks on while the time is up, and closes the store."""
    store = SqlDelayedMessageStore(url)
    store.initialize("sales", TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    ends: list[str] = []
    for end in ("connect", "close"):
        event.listen(store.engine, end, lambda *_, end=end: ends.append(end))
    store.close()
    ends.clear()

    def asks_too_late() -> bool:
        """Whether it connected at all: most often nobody has noticed yet that the time is up."""
        question = Question("counting", store.count, 0)
        wait_until(lambda: not question.open, "there is an answer")
        return bool(ends)

    wait_until(asks_too_late, "it has connected")
    assert ends == ["connect", "close"]
