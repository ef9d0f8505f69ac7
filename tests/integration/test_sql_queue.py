"""The SQL queue on each database, alone and in a store's transaction."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text

from delaystore.dispatcher import Dispatcher
from delaystore.errors import (
    ConfigurationError,
    TransportSetupError,
    TransportUnavailableError,
    UnsupportedMessageError,
    UnsupportedModeError,
)
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport, open_transport
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.integration.sql_stores import connected, message
from tests.servers import PostgreSQL, PostgreSQLDatabases

NOW = datetime(2027, 1, 1, tzinfo=UTC)
EVIL = "pay\"; drop:table `x` %s %(y)s; --'"
EXACTLY_ONCE = DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE)


@pytest.fixture
def queues(database_url: str) -> Iterator[SqlQueueTransport]:
    """Queues in the empty database, with `billing` declared."""
    transport = SqlQueueTransport(database_url)
    transport.declare("billing")
    yield transport
    transport.close()


def kinds(outcomes: Sequence[Outcome]) -> list[OutcomeKind]:
    return [outcome.kind for outcome in outcomes]


def send(transport: SqlQueueTransport, *messages: DelayedMessage) -> list[OutcomeKind]:
    return kinds(transport.send(messages, None, 10))


def drained(transport: SqlQueueTransport, queue: str = "billing") -> list[str]:
    ids: list[str] = []
    while True:
        with transport.receive(queue, 100) as received:
            ids += [one.message_id for one in received]
        if not received:
            return ids


def test_what_is_sent_is_received_as_it_was(queues: SqlQueueTransport) -> None:
    headers: dict[str, Any] = {
        "bytes": b"\0\xff",
        "nested": {"list": [1, True, None, 1.5, {"deep": Decimal("1.10")}]},
        "time": datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC),
        "text": "größer \U0001f600",
    }
    properties = {"priority": 3, "timestamp": NOW, "content_type": "text/plain"}
    sent = message(NOW, message_id="Id \U0001f600", body=b"\0binary\xff", headers=headers, properties=properties)
    assert send(queues, sent) == [OutcomeKind.DELIVERED]
    with queues.receive("billing") as (received,):
        assert received.message_id == "Id \U0001f600"
        assert received.body == b"\0binary\xff"
        assert received.headers == headers
        assert received.properties == properties


@pytest.mark.parametrize("unreadable", ["nonsense", '{"a":' * 5000 + "1" + "}" * 5000])
def test_headers_that_cannot_be_decoded_are_received_as_they_are(
    queues: SqlQueueTransport, database_url: str, unreadable: str
) -> None:
    send(queues, message(NOW))
    with connected(database_url) as connection:
        connection.execute(text("update billing_queue set headers = :headers"), {"headers": unreadable})
    with queues.receive("billing") as (received,):
        assert received.headers == {"delaystore.raw": unreadable}


def test_messages_are_received_in_the_order_they_were_sent_in(queues: SqlQueueTransport) -> None:
    ids = [f"{number}" for number in range(250)]
    send(queues, *(message(NOW, message_id=one) for one in ids))
    assert drained(queues) == ids


def test_each_message_gets_an_outcome_of_its_own(queues: SqlQueueTransport) -> None:
    destinations = ["billing", "nowhere", "/queues/billing", "/exchanges/x/y", "/queues/%ff", "billing"]
    outcomes = queues.send([message(NOW, destination=one) for one in destinations], None, 10)
    good, bad = OutcomeKind.DELIVERED, OutcomeKind.UNROUTABLE
    assert kinds(outcomes) == [good, bad, good, bad, bad, good]
    assert "no queue 'nowhere'" in outcomes[1].reason
    assert len(drained(queues)) == 3


def test_sending_nothing_is_nothing(queues: SqlQueueTransport) -> None:
    assert send(queues) == []


def test_an_address_names_the_queue_percent_decoded(queues: SqlQueueTransport) -> None:
    queues.declare("größe/50%")
    assert send(queues, message(NOW, destination="/queues/gr%C3%B6%C3%9Fe%2F50%25")) == [OutcomeKind.DELIVERED]
    assert len(drained(queues, "größe/50%")) == 1


def test_a_hostile_queue_name_is_just_a_name(queues: SqlQueueTransport) -> None:
    queues.declare(EVIL)
    assert send(queues, message(NOW, destination=EVIL)) == [OutcomeKind.DELIVERED]
    assert len(drained(queues, EVIL)) == 1
    queues.delete(EVIL)
    assert send(queues, message(NOW, destination=EVIL)) == [OutcomeKind.UNROUTABLE]


def test_a_queue_dropped_behind_our_back_is_unroutable_and_harms_no_other(
    queues: SqlQueueTransport, database_url: str
) -> None:
    queues.declare("other")
    send(queues, message(NOW, destination="other"))
    elsewhere = SqlQueueTransport(database_url)
    elsewhere.delete("other")
    elsewhere.close()
    outcomes = send(queues, message(NOW, destination="other"), message(NOW, message_id="good"))
    assert outcomes == [OutcomeKind.UNROUTABLE, OutcomeKind.DELIVERED]
    assert drained(queues) == ["good"]
    queues.declare("other")
    assert send(queues, message(NOW, destination="other")) == [OutcomeKind.DELIVERED]


def test_one_row_the_database_refuses_harms_itself_alone(queues: SqlQueueTransport, database_url: str) -> None:
    with connected(database_url) as connection:
        quoted = connection.dialect.identifier_preparer.quote("strict_queue")
        text_type = "varbinary(255)" if connection.dialect.name in ("mysql", "mariadb") else "text"
        columns = f"message_id {text_type} check (message_id <> 'bad'), due_time {text_type}, headers {text_type}, "
        columns += f"properties {text_type}, body {text_type}, enqueued_at {text_type}"
        if connection.dialect.name == "postgresql":
            columns = columns.replace("body text", "body bytea").replace("due_time text", "due_time timestamptz")
            columns = columns.replace("enqueued_at text", "enqueued_at timestamptz")
        connection.execute(text(f"create table {quoted} ({columns})"))
    ids = ["first", "bad", "last"]
    outcomes = queues.send([message(NOW, message_id=one, destination="strict") for one in ids], None, 10)
    assert kinds(outcomes) == [OutcomeKind.DELIVERED, OutcomeKind.REFUSED, OutcomeKind.DELIVERED]
    assert outcomes[1].reason


def test_what_a_failing_reader_took_goes_back(queues: SqlQueueTransport) -> None:
    send(queues, message(NOW, message_id="a"), message(NOW, message_id="b"))
    with pytest.raises(RuntimeError, match="reader"), queues.receive("billing", 10) as received:
        assert len(received) == 2
        raise RuntimeError("the reader fails")
    assert drained(queues) == ["a", "b"]


def test_a_reader_takes_no_more_than_it_asked_for(queues: SqlQueueTransport) -> None:
    send(queues, message(NOW, message_id="a"), message(NOW, message_id="b"))
    with queues.receive("billing", 1) as received:
        assert [one.message_id for one in received] == ["a"]
    assert drained(queues) == ["b"]


def test_two_readers_never_have_the_same_message(queues: SqlQueueTransport, database_url: str) -> None:
    send(queues, message(NOW, message_id="a"), message(NOW, message_id="b"))
    other = SqlQueueTransport(database_url)
    with queues.receive("billing") as mine, other.receive("billing", 10) as theirs:
        assert [one.message_id for one in mine] == ["a"]
        assert [one.message_id for one in theirs] == ["b"]
    other.close()
    assert drained(queues) == []


def test_sending_goes_on_while_a_reader_is_at_work(queues: SqlQueueTransport, database_url: str) -> None:
    send(queues, message(NOW, message_id="a"))
    other = SqlQueueTransport(database_url)
    with queues.receive("billing", 10):
        assert send(other, message(NOW, message_id="b")) == [OutcomeKind.DELIVERED]
    other.close()
    assert drained(queues) == ["b"]


def test_many_readers_share_everything_out(queues: SqlQueueTransport) -> None:
    ids = {f"{number}" for number in range(500)}
    send(queues, *(message(NOW, message_id=one) for one in ids))

    def read() -> list[str]:
        taken: list[str] = []
        while True:
            with queues.receive("billing", 7, timeout=0.5) as received:
                taken += [one.message_id for one in received]
            if not received:
                return taken

    with ThreadPoolExecutor(4) as pool:
        shares = [future.result() for future in [pool.submit(read) for _ in range(4)]]
    everything = [one for share in shares for one in share]
    assert len(everything) == len(ids)
    assert set(everything) == ids


def test_a_waiting_reader_gets_what_comes_later(queues: SqlQueueTransport) -> None:
    sender = threading.Timer(0.3, send, (queues, message(NOW, message_id="late")))
    sender.start()
    with queues.receive("billing", timeout=30) as received:
        assert [one.message_id for one in received] == ["late"]
    sender.join()


def test_a_reader_of_a_missing_queue_is_told_so(queues: SqlQueueTransport) -> None:
    with pytest.raises(TransportSetupError, match="no queue 'nowhere'"), queues.receive("nowhere"):
        pytest.fail("there is nothing to receive")


def test_the_readers_own_error_passes_as_it_is(queues: SqlQueueTransport) -> None:
    engine = create_engine("sqlite://")
    with (
        pytest.raises(Exception, match="no such table: mine"),
        queues.receive("billing"),
        engine.connect() as connection,
    ):
        connection.execute(text("select * from mine"))
    engine.dispose()


def test_many_declare_one_queue_at_once(database_url: str) -> None:
    transports = [SqlQueueTransport(database_url) for _ in range(6)]
    gate = threading.Barrier(len(transports))

    def declare(transport: SqlQueueTransport) -> None:
        gate.wait(30)
        transport.declare("shared")

    with ThreadPoolExecutor(len(transports)) as pool:
        for future in [pool.submit(declare, transport) for transport in transports]:
            future.result()
    assert send(transports[0], message(NOW, destination="shared")) == [OutcomeKind.DELIVERED]
    for transport in transports:
        transport.close()


def test_declaring_again_keeps_what_is_there(queues: SqlQueueTransport) -> None:
    send(queues, message(NOW, message_id="a"))
    queues.declare("billing")
    assert drained(queues) == ["a"]


def test_a_queue_may_live_in_another_schema(postgresql_url: str) -> None:
    engine = create_engine(postgresql_url)
    with engine.begin() as connection:
        connection.execute(text('create schema "Q s"'))
    transport = SqlQueueTransport(engine, schema="Q s")
    transport.declare("billing")
    assert send(transport, message(NOW)) == [OutcomeKind.DELIVERED]
    assert inspect(engine).get_table_names("Q s") == ["billing_queue"]
    assert inspect(engine).get_table_names() == []
    transport.close()
    engine.dispose()


def test_only_stores_in_the_same_database_share_a_transaction(
    queues: SqlQueueTransport, store: SqlDelayedMessageStore, tmp_path: Any
) -> None:
    elsewhere = SqlDelayedMessageStore(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    assert queues.shares_transaction_with(store)
    assert SqlQueueTransport(store.engine).shares_transaction_with(store)
    assert not queues.shares_transaction_with(elsewhere)
    elsewhere.initialize("sales", TransactionMode.TRANSACTION_SCOPE)
    with pytest.raises(UnsupportedModeError):
        Dispatcher(elsewhere, queues, EXACTLY_ONCE)


def test_what_a_rolled_back_transaction_forwarded_was_never_sent(
    queues: SqlQueueTransport, store: SqlDelayedMessageStore
) -> None:
    store.store(message(store.now(), message_id="a"))
    with pytest.raises(RuntimeError), store.transaction() as tx:
        batch = tx.fetch_due(store.now(), 10)
        assert kinds(queues.send(batch, tx, 10)) == [OutcomeKind.DELIVERED]
        assert tx.remove_many(batch) == 1
        raise RuntimeError("the process dies here")
    assert drained(queues) == []
    assert store.count() == 1


def test_a_committed_transaction_has_moved_the_message(
    queues: SqlQueueTransport, store: SqlDelayedMessageStore
) -> None:
    store.store(message(store.now(), message_id="a"))
    with store.transaction() as tx:
        batch = tx.fetch_due(store.now(), 10)
        assert kinds(queues.send(batch, tx, 10)) == [OutcomeKind.DELIVERED]
        assert drained(queues) == []
        assert tx.remove_many(batch) == 1
    assert drained(queues) == ["a"]
    assert store.count() == 0


def test_a_missing_queue_leaves_the_stores_transaction_whole(
    queues: SqlQueueTransport, store: SqlDelayedMessageStore, database_url: str
) -> None:
    queues.declare("dropped")
    send(queues, message(NOW, destination="dropped"))
    elsewhere = SqlQueueTransport(database_url)
    elsewhere.delete("dropped")
    elsewhere.close()
    store.store_many(message(store.now(), destination=one) for one in ("dropped", "nowhere", "billing"))
    with store.transaction() as tx:
        batch = tx.fetch_due(store.now(), 10)
        outcomes = queues.send(batch, tx, 10)
        tx.remove_many([one for one, outcome in zip(batch, outcomes, strict=True) if outcome.kind.value == "delivered"])
    assert (
        sorted(kinds(outcomes), key=lambda kind: kind.value) == [OutcomeKind.DELIVERED] + [OutcomeKind.UNROUTABLE] * 2
    )
    assert store.count() == 2
    assert len(drained(queues)) == 1


def test_a_queue_sent_to_outside_the_transaction_does_not_wait_for_it(
    queues: SqlQueueTransport, store: SqlDelayedMessageStore
) -> None:
    store.store(message(store.now(), message_id="a"))
    with store.transaction() as tx:
        batch = tx.fetch_due(store.now(), 10)
        assert kinds(queues.send(batch, None, 10)) == [OutcomeKind.DELIVERED]
        assert drained(queues) == ["a"]
        tx.remove_many(batch)
    assert store.count() == 0


def test_a_dispatcher_moves_everything_exactly_once(queues: SqlQueueTransport, store: SqlDelayedMessageStore) -> None:
    now = store.now()
    ids = {f"{number}" for number in range(300)}
    store.store_many(message(now, message_id=one) for one in ids)
    store.store(message(now, destination="nowhere", message_id="lost?"))
    report = Dispatcher(store, queues, EXACTLY_ONCE).dispatch_due()
    assert (report.delivered, report.moved_to_error_queue) == (300, 1)
    assert sorted(drained(queues)) == sorted(ids)
    assert drained(queues, "error") == ["lost?"]
    assert store.count() == 0


def test_a_lease_that_ran_out_lets_another_reader_in(sqlite_url: str) -> None:
    slow, other = SqlQueueTransport(sqlite_url), SqlQueueTransport(sqlite_url)
    slow.declare("billing")
    send(slow, message(NOW, message_id="a"))
    with slow.receive("billing"):
        assert drained(other) == []
        with connected(sqlite_url) as connection:
            ended = "UPDATE billing_queue SET claimed_until = '2001-01-01 00:00:00.000000'"
            assert connection.execute(text(ended)).rowcount == 1
        assert drained(other) == ["a"]
    slow.close()
    other.close()


def test_an_outage_is_an_outcome_and_the_queue_comes_back(private_postgresql: PostgreSQL) -> None:
    transport = SqlQueueTransport(private_postgresql.create_database())
    transport.declare("billing")
    assert send(transport, message(NOW)) == [OutcomeKind.DELIVERED]
    private_postgresql.kill()
    outcomes = transport.send([message(NOW), message(NOW, destination="nowhere")], None, 5)
    assert kinds(outcomes) == [OutcomeKind.UNCONFIRMED] * 2
    assert all(outcome.reason for outcome in outcomes)
    with pytest.raises(TransportUnavailableError), transport.receive("billing"):
        pytest.fail("there is nothing to receive")
    private_postgresql.start()
    assert send(transport, message(NOW)) == [OutcomeKind.DELIVERED]
    assert len(drained(transport)) == 2
    transport.close()


def test_a_locked_table_is_no_message_fault(postgresql_url: str) -> None:
    transport, engine = SqlQueueTransport(postgresql_url), create_engine(postgresql_url)
    transport.declare("billing")
    with engine.begin() as connection:
        connection.execute(text("lock table billing_queue in access exclusive mode"))
        assert kinds(transport.send([message(NOW)], None, 0.2)) == [OutcomeKind.UNCONFIRMED]
    engine.dispose()
    transport.close()


def test_a_queue_the_user_may_not_write_to_refuses(postgresql: PostgreSQLDatabases, postgresql_url: str) -> None:
    owner = SqlQueueTransport(postgresql_url)
    owner.declare("billing")
    guest = SqlQueueTransport(postgresql.create_role("guest", "s3cret", postgresql_url))
    outcomes = guest.send([message(NOW), message(NOW)], None, 5)
    assert kinds(outcomes) == [OutcomeKind.REFUSED] * 2
    assert "permission denied" in outcomes[0].reason
    with pytest.raises(TransportSetupError, match="permission denied"):
        guest.declare("another")
    for transport in (owner, guest):
        transport.close()


@pytest.mark.parametrize(
    ("url", "longest"), [("sqlite:///x.db", 249), ("postgresql+psycopg://h/d", 57), ("mysql+pymysql://h/d", 58)]
)
def test_a_name_too_long_for_the_database_is_refused_before_it_is_stored(url: str, longest: int) -> None:
    transport = SqlQueueTransport(url)
    transport.check(message(NOW, destination="q" * longest))
    with pytest.raises(UnsupportedMessageError, match="shorter"):
        transport.check(message(NOW, destination="q" * (longest + 1)))


@pytest.mark.parametrize("destination", ["/exchanges/amq.topic/key", "/queues/%ff", "/queues/", "sqlite_master"])
def test_what_cannot_be_a_queue_is_refused_before_it_is_stored(destination: str) -> None:
    with pytest.raises(UnsupportedMessageError):
        SqlQueueTransport("sqlite:///x.db").check(message(NOW, destination=destination))


def test_passwords_are_not_shown() -> None:
    transport = open_transport("postgresql+psycopg://app:s3cret@localhost/app")
    assert isinstance(transport, SqlQueueTransport)
    assert "s3cret" not in repr(transport)


@pytest.mark.parametrize("url", ["sqlite://", "postgresql+nothing://h/d", "sqlite"])
def test_a_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        SqlQueueTransport(url)


def test_an_engine_of_the_users_own_stays_open(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    transport = SqlQueueTransport(engine)
    transport.declare("billing")
    transport.close()
    assert send(transport, message(NOW)) == [OutcomeKind.DELIVERED]
    engine.dispose()
