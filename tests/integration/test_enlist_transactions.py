"""Enlisting in SQLAlchemy's transactions: other transactions beside them, and one connection for all of it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, insert, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from delaystore.delivery import DelayedDelivery
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    MessageBeingStoredError,
    StoreError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql import setup
from delaystore.stores.sql import store as store_module
from delaystore.stores.sql.dialects import postgresql
from tests.integration.sql_stores import message


@pytest.fixture(params=["postgresql_url", "mariadb_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def delivery(engine: Engine) -> DelayedDelivery:
    delivery = DelayedDelivery("sales", SqlDelayedMessageStore(engine))
    delivery.setup_infrastructure()
    return delivery


@pytest.mark.parametrize("tables", [True, False], ids=["with tables", "without"])
def test_fifteen_transactions_need_no_sixteenth_connection(url: str, *, tables: bool) -> None:
    """The pool has no more, and the delivery has neither been started nor set up in this process."""
    if tables:
        with DelayedDelivery("sales", SqlDelayedMessageStore(url)):
            pass
    engine = create_engine(url, pool_size=5, max_overflow=10, pool_timeout=2)
    delivery = DelayedDelivery("sales", SqlDelayedMessageStore(engine))
    fifteen = threading.Barrier(15)

    def work(_: int) -> None:
        with Session(engine) as session, session.begin():
            session.connection()
            fifteen.wait(30)
            delivery.enlist(session).send("billing", b"", delay=60)

    with ThreadPoolExecutor(15) as threads:
        list(threads.map(work, range(15)))
    assert delivery.count() == 15
    engine.dispose()


@pytest.mark.long_runs("mariadb_url")
def test_an_id_in_an_open_transaction_is_not_waited_for_in_vain(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where one thread, or one event loop, has both: the transaction cannot end before the call does."""
    monkeypatch.setattr(postgresql, "INSERT_LOCK_TIMEOUT", 0.3)
    settings = DelayedDeliverySettings(store_timeout=5)
    # A table of its own, whose statements are built with that patience.
    store = SqlDelayedMessageStore(url, table="of_little_patience")
    with DelayedDelivery("sales", store, settings=settings) as delivery:
        with engine.connect() as first, engine.connect() as second:
            if engine.dialect.name == "postgresql":  # ends what would otherwise wait for ever, by another error
                second.exec_driver_sql("SET statement_timeout = '20s'")
            else:  # there it is the server's own limit, 50 s unless set
                second.exec_driver_sql("SET innodb_lock_wait_timeout = 1")
            second.commit()
            delivery.enlist(first).send("billing", b"", delay=3600, message_id="one")
            with pytest.raises(MessageBeingStoredError, match="which has not ended; try again"):
                delivery.enlist(second).send("billing", b"", delay=3600, message_id="one")
            second.rollback()
            with pytest.raises(StoreUnavailableError, match="if it is your own, enlist this call in it"):
                delivery.enlist(second).send_many([message(delivery._store.now(), 60, "one")])
            second.rollback()
            bounded = MessageBeingStoredError if engine.dialect.name == "postgresql" else StoreUnavailableError
            with pytest.raises(bounded):
                delivery.send("billing", b"", delay=3600, message_id="one")
            first.commit()
        with pytest.raises(DuplicateMessageError):
            delivery.send("billing", b"", delay=3600, message_id="one")


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
@pytest.mark.parametrize("limit", ["0", "90s", "700ms"])
def test_the_callers_limit_for_locks_stays_as_it_is(delivery: DelayedDelivery, engine: Engine, limit: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(f"SET LOCAL lock_timeout = '{limit}'"))
        before = connection.execute(text("SHOW lock_timeout")).scalar()
        stored, refused = nullcontext(), pytest.raises(DuplicateMessageError)
        expectations: list[AbstractContextManager[Any]] = [stored, refused]
        for expected in expectations:
            with expected:
                delivery.enlist(connection).send("billing", b"", delay=60, message_id="one")
            assert delivery.enlist(connection).send_many([message(delivery._store.now(), 60)]) == 1
            assert connection.execute(text("SHOW lock_timeout")).scalar() == before
        connection.rollback()
        assert connection.execute(text("SHOW lock_timeout")).scalar() == "0"


def test_cancel_when_paid_is_part_of_the_payment(delivery: DelayedDelivery, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE payments (id INTEGER)"))
    reminder = delivery.send("reminders", b"", delay=3600)
    sent = delivery.get(reminder)

    def pay(session: Session) -> ManagementOutcome:
        session.execute(text("INSERT INTO payments VALUES (1)"))
        return delivery.enlist(session).cancel(reminder)

    with Session(engine) as session:
        assert pay(session) is ManagementOutcome.DONE
        assert delivery.get(reminder) is not None
        assert delivery.cancel(reminder) is ManagementOutcome.BEING_DISPATCHED
        session.rollback()
    assert delivery.get(reminder) is not None
    with Session(engine) as session, session.begin():
        nested = session.begin_nested()
        delivery.enlist(session).reschedule(reminder, delay=1)
        nested.rollback()
        found = delivery.enlist(session).get(reminder)
        assert found == delivery.get(reminder) == sent
        assert pay(session) is ManagementOutcome.DONE
    assert delivery.get(reminder) is None


def test_a_scoped_session(delivery: DelayedDelivery, engine: Engine) -> None:
    sessions = scoped_session(sessionmaker(engine))
    delivery.enlist(sessions).send("billing", b"", delay=60)
    sessions.rollback()
    delivery.enlist(sessions).send("billing", b"", delay=60)
    sessions.commit()
    sessions.remove()
    assert delivery.count() == 1


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_a_connection_by_another_name_of_the_server(delivery: DelayedDelivery, url: str) -> None:
    named = create_engine(url.replace("127.0.0.1", "localhost"))
    with named.begin() as connection:
        delivery.enlist(connection).send("billing", b"", delay=60)
    elsewhere = create_engine(named.url.set(database="postgres"))
    with (
        elsewhere.connect() as connection,
        pytest.raises(ConfigurationError, match="uses another database than the store"),
    ):
        delivery.enlist(connection)
    named.dispose()
    elsewhere.dispose()
    assert delivery.count() == 1


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_what_belongs_to_asyncio_is_for_its_own_delivery(delivery: DelayedDelivery, engine: Engine) -> None:
    asynchronous = create_async_engine(engine.url)
    with pytest.raises(ConfigurationError, match=r"enlist it by AsyncDelayedDelivery\.enlist"):
        delivery.enlist(asynchronous.connect())


@pytest.mark.parametrize("url", ["sqlite_url"], indirect=True)
def test_an_open_writer_of_sqlite_is_waited_for_as_long_as_the_url_says(url: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(f"{url}?timeout=0.2")) as delivery:
        engine = create_engine(url)
        statements: list[Any] = []
        event.listen(engine, "commit", lambda _: statements.append("commit"))
        with engine.connect() as connection:
            delivery.enlist(connection).send("billing", b"", delay=60, message_id="one")
            with pytest.raises(StoreUnavailableError, match="if it is your own, enlist this call in it"):
                delivery.send("billing", b"", delay=60)
            connection.rollback()
        assert statements == []
        assert delivery.count() == 0
        engine.dispose()


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_tables_that_others_make_for_long_are_missed_soon(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_SHORT_WAIT", 0.1)
    dialect, store = postgresql.PostgreSqlDialect("postgresql"), SqlDelayedMessageStore(url)
    delivery = DelayedDelivery("sales", store)
    with (
        engine.connect() as making,
        dialect.setup_lock(making, store.table.fullname),
        engine.connect() as connection,
        ThreadPoolExecutor(1) as threads,
        pytest.raises(StoreSetupError, match="call setup_infrastructure"),
    ):
        enlisting = threads.submit(delivery.enlist, connection)
        try:
            enlisting.result(5)
        finally:
            making.rollback()
    delivery.close()


@pytest.mark.parametrize("url", ["sqlite_url"], indirect=True)
@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
@pytest.mark.parametrize("statement", ["INSERT INTO orders VALUES (1)", "BEGIN"])
def test_tables_that_cannot_be_made_beside_a_transaction_are_missed_at_once(
    url: str, engine: Engine, mode: str, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only writer, or sees nothing that is newer than itself."""
    monkeypatch.setattr(setup, "upgrade", None)  # nobody waits for the transaction
    with engine.connect() as connection:
        connection.execute(text(f"PRAGMA journal_mode={mode}"))
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
        connection.execute(text(statement))
        store = SqlDelayedMessageStore(url)
        delivery = DelayedDelivery("sales", store)
        with pytest.raises(StoreSetupError, match="call setup_infrastructure"):
            delivery.enlist(connection)
        connection.commit()
        monkeypatch.undo()
        delivery.enlist(connection).send("billing", b"", delay=60)
        connection.commit()
        assert connection.execute(text("SELECT count(*) FROM orders")).scalar() == ("INSERT" in statement)
        assert delivery.count() == 1
        delivery.close()


@pytest.mark.parametrize("url", ["mariadb_url"], indirect=True)
def test_a_deadlock_is_told_as_such(delivery: DelayedDelivery, engine: Engine) -> None:
    """It has undone the savepoint in which the messages were to be stored."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO orders VALUES (0)"))
    with engine.connect() as one, engine.connect() as other, ThreadPoolExecutor(1) as thread:
        one.execute(text("SELECT * FROM orders WHERE id = 0 FOR UPDATE")).all()
        for number in range(1, 9):  # the victim is who has written less
            other.execute(text("INSERT INTO orders VALUES (:id)"), {"id": number})
        delivery.enlist(other).send("billing", b"", delay=60, message_id="one")
        sending = thread.submit(delivery.enlist(one).send_many, [message(delivery._store.now(), 60, "one")])
        other.execute(text("SELECT * FROM orders WHERE id = 0 FOR UPDATE")).all()
        with pytest.raises(StoreError, match="Deadlock"):
            sending.result(30)
        one.rollback()
        other.rollback()


@pytest.mark.parametrize("kind", ["postgresql_url", "mariadb_url", "sqlite_url"])
def test_a_driver_in_its_autocommit_mode_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    url = str(request.getfixturevalue(kind))
    mode: dict[str, Any] = {"isolation_level": None} if kind == "sqlite_url" else {"autocommit": True}
    with DelayedDelivery("sales", SqlDelayedMessageStore(url)) as delivery:
        engine = create_engine(url, connect_args=mode)
        with engine.connect() as connection, Session(engine) as session:
            for each in (connection, session):
                with pytest.raises(ConfigurationError, match="begin a transaction first"):
                    delivery.enlist(each)
            assert not connection.in_transaction()
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with engine.connect() as connection, Session(engine) as session:
            for each in (connection, session):
                delivery.enlist(each).send("billing", b"", delay=60)
                each.rollback()
            assert delivery.count() == 0
            with session.begin():
                delivery.enlist(session).send("billing", b"", delay=60)
            assert delivery.count() == 1
        engine.dispose()


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_a_connection_without_transactions_is_refused(delivery: DelayedDelivery, engine: Engine) -> None:
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with connection, pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        delivery.enlist(connection)
    committing = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with committing.connect() as connection, pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        delivery.enlist(connection)
    committing.dispose()


class Base(DeclarativeBase):
    """What the tests map."""


class Order(Base):
    """A row of the caller's."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_sessions_that_take_no_statements(delivery: DelayedDelivery, engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match="bound to no single engine"):
        delivery.enlist(Session())
    closed = Session(engine, close_resets_only=False)
    closed.close()
    with pytest.raises(StoreError, match="permanently closed"):
        delivery.enlist(closed)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        enlisted = delivery.enlist(session)
        session.execute(insert(Order).values(id=1))
        session.add(Order(id=1))
        with pytest.raises(IntegrityError):
            session.flush()
        for call in (lambda: enlisted.get("paid"), lambda: enlisted.send("billing", b"", delay=60)):
            with pytest.raises(StoreError, match="has failed; roll it back"):
                call()
        session.rollback()
        enlisted.send("billing", b"", delay=60)
        session.commit()
    assert delivery.count() == 1
