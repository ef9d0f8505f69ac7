"""Keys in SQL stores: several processes, somebody's open transactions, the caller's transaction."""

import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.orm import Session

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.errors import (
    DuplicateKeyError,
    DuplicateMessageError,
    KeyInUseError,
    StoreError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.message import LATEST_DUE_TIME, KeyRule, OnKey
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql._keyed import LockedRow
from delaystore.stores.sql.bulk_partitions import PartitionLimits, PendingPartition
from delaystore.testing import RecordingTransport
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened, set_snapshot_isolation

KEYS = ("a", "b")
SENDS = 60
PROCESSES = 2
REPLACE = KeyRule(OnKey.REPLACE)


@dataclass(frozen=True)
class Send:
    """A send, as its process saw it. `waiting`: what send returned; None: KeyInUseError."""

    key: str
    message_id: str
    began: float
    ended: float
    waiting: str | None


def send_by_key(url: str, on_key: str, seed: int) -> list[Send]:
    chance, sends = random.Random(seed), []
    with opened(url) as store:
        delivery = DelayedDelivery("sales", store)
        for number in range(SENDS):
            key, message_id, began = chance.choice(KEYS), f"{seed}-{number}", time.monotonic()
            waiting: str | None
            try:
                waiting = delivery.send(
                    "billing", b"", delay=chance.uniform(0, 0.05), key=key, on_key=on_key, message_id=message_id
                )
            except KeyInUseError:
                waiting = None
            sends.append(Send(key, message_id, began, time.monotonic(), waiting))
    return sends


@pytest.mark.long_runs("mariadb", "keep")
@pytest.mark.parametrize("on_key", [OnKey.KEEP, OnKey.REPLACE])
def test_processes_that_send_the_same_keys_while_a_dispatcher_works(
    store: SqlDelayedMessageStore, database_url: str, on_key: OnKey
) -> None:
    transport = RecordingTransport()
    with (
        DelayedDelivery("sales", store, transport) as delivery,
        ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool,
    ):
        futures = [pool.submit(send_by_key, database_url, on_key, seed) for seed in range(PROCESSES)]
        while not all(future.done() for future in futures):
            waiting = [one.key for one in store.list().messages]
            assert len(waiting) == len(set(waiting)), "two with one key wait"
            time.sleep(0.01)
        sends = [send for future in futures for send in future.result()]
        delivery.send("woken", b"", delay=0)  # the dispatcher would find others' messages by itself, at its leisure
        wait_until(lambda: store.count() == 0, "everything was dispatched")
    arrived = {one.message_id for one in transport.sent if one.destination == "billing"}
    assert not arrived & {send.message_id for send in sends if send.waiting is None}
    acknowledged = {send.waiting for send in sends if send.waiting is not None}
    if on_key is OnKey.KEEP:
        assert arrived == acknowledged
        return
    assert arrived <= acknowledged
    for lost in (send for send in sends if send.waiting is not None and send.waiting not in arrived):
        assert any(send.key == lost.key and send.waiting and send.ended > lost.began for send in sends if send != lost)
    for key in KEYS:
        last = max((send for send in sends if send.key == key and send.waiting), key=lambda send: send.began)
        others = [send for send in sends if send.key == key and send != last and send.ended > last.began]
        assert last.message_id in arrived or others, "the last one replaced all others, and is lost"


class ImpatientStore(SqlDelayedMessageStore):
    key_timeout: ClassVar = 0.3


@pytest.fixture
def impatient(database_url: str, store: SqlDelayedMessageStore) -> Iterator[DelayedDelivery]:
    impatient = ImpatientStore(database_url)
    yield DelayedDelivery("sales", impatient)
    impatient.close()


@pytest.mark.long_runs("mariadb", "sqlite")
def test_whoever_is_waited_for_too_long_is_told_of(store: SqlDelayedMessageStore, impatient: DelayedDelivery) -> None:
    store.store(message(store.now(), key="k"))
    with store.transaction() as dispatcher:
        (held,) = dispatcher.fetch_due(store.now(), 1)
        assert impatient.cancel(key="k") is ManagementOutcome.BEING_DISPATCHED
        assert impatient.reschedule(key="k", delay=5) is ManagementOutcome.BEING_DISPATCHED
        for on_key in OnKey:
            with pytest.raises(KeyInUseError, match="send again"):
                impatient.send("billing", b"", delay=60, key="k", on_key=on_key)
        assert dispatcher.remove(held)
    impatient.send("billing", b"", delay=60, key="k")
    assert store.count() == 1


@pytest.mark.long_runs("mariadb")
@pytest.mark.parametrize("database_url", ["postgresql", "mariadb"], indirect=True)
def test_others_do_not_wait_for_a_callers_transaction_without_end(
    store: SqlDelayedMessageStore, impatient: DelayedDelivery
) -> None:
    with store.engine.connect() as connection:
        DelayedDelivery("sales", store).enlist(connection).send("billing", b"", delay=60, key="k")
        for on_key in OnKey:
            with pytest.raises(KeyInUseError):
                impatient.send("billing", b"", delay=60, key="k", on_key=on_key)
    impatient.send("billing", b"", delay=60, key="k")


def test_in_the_callers_transaction(store: SqlDelayedMessageStore) -> None:
    """What is refused leaves it alive; what it does shows at its end."""
    engine = create_engine(store.engine.url)
    delivery = DelayedDelivery("sales", store)
    first = delivery.send("billing", b"1", delay=60, key="k")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
    with Session(engine) as session:
        session.execute(text("INSERT INTO orders VALUES (17)"))
        enlisted = delivery.enlist(session)
        with pytest.raises(DuplicateKeyError):
            enlisted.send("billing", b"2", delay=60, key="k")
        assert enlisted.send("billing", b"2", delay=60, key="k", on_key="keep") == first
        second = enlisted.send("billing", b"3", delay=60, key="k", on_key="replace")
        third = enlisted.send("billing", b"4", delay=60, key="k", on_key="debounce", max_wait=90)
        assert len({first, second, third}) == 3
        assert enlisted.send_many([message(store.now(), 60, key="k")], on_key="keep") == 0
        session.rollback()
        found = delivery.get(key="k")
        assert found is not None
        assert found.message_id == first
        session.execute(text("INSERT INTO orders VALUES (18)"))
        last = enlisted.send("billing", b"5", delay=60, key="k", on_key="replace")
        session.commit()
        assert session.execute(text("SELECT id FROM orders")).scalars().all() == [18]
    assert [one.message_id for one in delivery.list().messages] == [last]
    engine.dispose()


@pytest.mark.parametrize("database_url", ["postgresql", "mariadb"], indirect=True)
def test_a_dispatcher_ends_while_the_callers_transaction_waits(store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), key="k"))
    delivery = DelayedDelivery("sales", store)
    with ThreadPoolExecutor(1) as pool, store.engine.connect() as connection:
        with store.transaction() as dispatcher:
            (held,) = dispatcher.fetch_due(store.now(), 1)
            sent = pool.submit(
                delivery.enlist(connection).send, "billing", b"", delay=60, key="k", on_key="replace", message_id="new"
            )
            with pytest.raises(TimeoutError):
                sent.result(0.3)
            assert dispatcher.remove(held)
        assert sent.result(30) == "new"
        connection.commit()
    assert store.message_id_of("k") == "new"


def test_under_repeatable_read_a_key_that_came_meanwhile_is_an_error(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        delivery, engine = DelayedDelivery("sales", store), create_engine(postgresql_url)
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            connection.execute(text("SELECT 1 FROM sales_delayed")).all()
            delivery.send("billing", b"", delay=60, key="k", message_id="first")
            with pytest.raises(StoreError, match="could not serialize"):
                delivery.enlist(connection).send("billing", b"", delay=60, key="k", on_key="replace")
        assert store.message_id_of("k") == "first"
        engine.dispose()


@pytest.fixture
def former(mariadb_url: str, request: pytest.FixtureRequest) -> Iterator[tuple[DelayedDelivery, Connection]]:
    """A delivery, and a transaction that reads what was there before anything was sent but `old`, with the key `k`.

    MariaDB's innodb_snapshot_isolation is OFF there, or as the parameter says; ON is the default from 11.6.2 on.
    """
    engine = create_engine(mariadb_url, isolation_level="REPEATABLE READ")
    set_snapshot_isolation(engine, getattr(request, "param", "OFF"))
    with opened(mariadb_url) as store:
        delivery = DelayedDelivery("sales", store)
        delivery.send("billing", b"", delay=60, key="k", message_id="old")
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM sales_delayed")).all()
            yield delivery, connection
    engine.dispose()


@pytest.mark.parametrize("former", ["ON"], indirect=True)
def test_where_a_transaction_may_not_read_newer_rows_it_is_to_be_repeated(
    former: tuple[DelayedDelivery, Connection],
) -> None:
    delivery, connection = former
    if connection.dialect.name == "mysql":
        pytest.skip("MySQL has no innodb_snapshot_isolation")
    newer = delivery.send("billing", b"", delay=60, key="k", on_key="replace")
    with pytest.raises(StoreError, match=r"another transaction has changed .*Record has changed.* begin it again"):
        delivery.enlist(connection).cancel(key="k")
    connection.rollback()
    assert delivery.enlist(connection).cancel(key="k") == "done"
    connection.commit()
    assert delivery.get(newer) is None


CHANGES: dict[str, Callable[[EnlistedDelivery, str], object]] = {
    "cancel": lambda enlisted, key: enlisted.cancel(key=key),
    "reschedule": lambda enlisted, key: enlisted.reschedule(key=key, delay=5),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_transaction_that_reads_older_rows_changes_the_newest(
    former: tuple[DelayedDelivery, Connection], change: Callable[[EnlistedDelivery, str], object]
) -> None:
    delivery, connection = former
    enlisted = delivery.enlist(connection)
    delivery.send("billing", b"", delay=60, key="k", on_key="replace")
    delivery.send("billing", b"", delay=60, key="new")
    assert [change(enlisted, key) for key in ("k", "new")] == ["done", "done"]
    with delivery._store.transaction() as dispatcher:
        assert not dispatcher.fetch_due(LATEST_DUE_TIME, 10), "the transaction has both"
    connection.commit()
    assert delivery.count() == (0 if change is CHANGES["cancel"] else 2)


def test_a_transaction_that_reads_older_rows_sends_by_the_newest(former: tuple[DelayedDelivery, Connection]) -> None:
    delivery, connection = former
    enlisted = delivery.enlist(connection)
    newer = delivery.send("billing", b"", delay=60, key="k", on_key="replace")
    newest = delivery.send("billing", b"", delay=60, key="new")
    assert enlisted.send("billing", b"", delay=60, key="k", on_key="keep") == newer
    with pytest.raises(DuplicateKeyError):
        enlisted.send("billing", b"", delay=60, key="new")
    with pytest.raises(DuplicateMessageError):
        enlisted.send("billing", b"", delay=60, key="another", message_id=newest)
    enlisted.send("billing", b"", delay=60, key="new", on_key="replace", message_id="mine")
    connection.commit()
    assert {one.message_id for one in delivery.list().messages} == {newer, "mine"}


def test_a_transaction_that_finds_nothing_to_change_holds_up_no_sender(
    former: tuple[DelayedDelivery, Connection],
) -> None:
    """A locking search that finds nothing would lock the gap in which new ones belong."""
    delivery, connection = former
    if connection.dialect.name == "mysql":
        pytest.skip("MySQL keeps that gap for an insert that is undone, too: docs/reference/transaction-guarantees.md")
    enlisted = delivery.enlist(connection)
    for key in ("a", "l", "z"):
        assert CHANGES["cancel"](enlisted, key) == "not_found"
        assert enlisted.cancel(key) == "not_found"
        assert enlisted.reschedule(key, delay=5) == "not_found"
    with create_engine(delivery._store.engine.url).connect() as other:
        other.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
        for key in ("0", "b", "m", "zz"):
            delivery.enlist(other).send("billing", b"", delay=60, message_id=key)
            delivery.enlist(other).send("billing", b"", delay=60, message_id=f"{key} {key}", key=key)
        other.commit()
        other.engine.dispose()
    assert delivery.count() == 9


def test_who_could_not_insert_holds_up_no_dispatcher(mariadb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message came, and was claimed, since the sender looked for one of that key."""
    looked, look_up = threading.Event(), LockedRow.message_id_of

    def nothing_at_first(self: LockedRow, connection: Connection, key: str) -> str | None:
        found = look_up(self, connection, key) if looked.is_set() else None
        looked.set()
        return found

    with opened(mariadb_url) as store, ThreadPoolExecutor(1) as pool:
        store.store(message(store.now(), key="k"))
        with store.transaction() as dispatcher:
            (held,) = dispatcher.fetch_due(store.now(), 1)
            monkeypatch.setattr(LockedRow, "message_id_of", nothing_at_first)
            sent = pool.submit(store.store_keyed, message(store.now(), 60, "new", key="k"), REPLACE)
            assert looked.wait(30)
            time.sleep(0.3)
            assert dispatcher.remove(held)
        assert sent.result(30) == "new"


class PartitioningStore(SqlDelayedMessageStore):
    partition_limits: ClassVar = PartitionLimits(fewest_rows=3, smallest_table=0)


def test_keys_are_unique_beside_partitions(postgresql_url: str) -> None:
    """What has a key is in the endpoint's own table, whose index knows no partition."""
    with opened(postgresql_url) as plain:
        store = PartitioningStore(plain.engine)
        store.initialize("sales", "none")  # type: ignore[arg-type]
        now = store.now()
        batch = [message(now, 60, f"m{n}") for n in range(5)] + [message(now, 60, "k1", key="k")]
        assert store.store_many(batch) == 6
        with pytest.raises(DuplicateKeyError):
            store.store_many([message(now, 60, f"n{n}") for n in range(5)] + [message(now, 60, "k2", key="k")])
        assert store.store_many([*(message(now, 60) for _ in range(5)), message(now, key="k")], REPLACE) == 6
        with store.engine.connect() as connection:
            alone = text("SELECT count(*) FROM ONLY sales_delayed")
            assert (connection.execute(alone).scalar(), store.count()) == (1, 11)


@pytest.mark.parametrize("rows", [1, 5])
def test_an_id_twice_in_a_batch_is_a_duplicate_beside_partitions(postgresql_url: str, rows: int) -> None:
    """A key's message is placed while the partition of the others is announced, and not attached."""
    with opened(postgresql_url) as plain:
        store = PartitioningStore(plain.engine)
        store.initialize("sales", "none")  # type: ignore[arg-type]
        now = store.now()
        batch = [message(now, 60, f"m{n}") for n in range(rows)]
        for twice in ([message(now, 60, "m0")], [message(now, 60, "m0", key="k")]):
            with pytest.raises(DuplicateMessageError) as raised:
                store.store_many(batch + twice)
            assert list(raised.value.message_ids) == ["m0"]
        assert store.count() == 0


def test_who_waits_for_a_table_is_not_told_of_a_message(postgresql_url: str) -> None:
    with opened(postgresql_url) as store, store.engine.begin() as other, store.engine.begin() as connection:
        other.exec_driver_sql("LOCK TABLE sales_delayed")
        connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
        with pytest.raises(StoreUnavailableError, match="another transaction has locked what is needed"):
            store.enlist(connection).store(message(store.now(), 60))
        connection.rollback()


def test_senders_do_not_wait_behind_a_partition_for_a_key_that_somebody_has(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher claims it once the partition is announced: who has claimed it before would be waited for there."""
    with opened(postgresql_url) as plain, ThreadPoolExecutor(1) as pool, plain.engine.connect() as looking:
        store = PartitioningStore(plain.engine)
        store.initialize("sales", "none")  # type: ignore[arg-type]
        now, announced, claimed = store.now(), threading.Event(), threading.Event()
        plain.store(message(now, key="k"))
        looking.execution_options(isolation_level="AUTOCOMMIT")
        move_in = PendingPartition.move_in

        def once_claimed(*arguments: Any, **named: Any) -> None:
            announced.set()
            assert claimed.wait(30)
            move_in(*arguments, **named)

        monkeypatch.setattr(PendingPartition, "move_in", once_claimed)
        batch = [*(message(now, 60) for _ in range(5)), message(now, 60, key="k")]
        storing = pool.submit(store.store_many, batch, REPLACE)
        assert announced.wait(30)
        with plain.transaction() as dispatching:
            (dispatched,) = dispatching.fetch_due(now, 10)
            claimed.set()
            waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
            wait_until(lambda: looking.execute(waits).scalar() == 1, "the batch waits for its key")
            with plain.engine.begin() as connection:
                connection.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
                plain.enlist(connection).store(message(now, 60))
            dispatching.remove(dispatched)
        assert (storing.result(), plain.count()) == (6, 7)


def test_what_was_sent_before_the_first_debounce_has_no_bound_of_its_own(store: SqlDelayedMessageStore) -> None:
    """A row whose column is empty, as another program writes it."""
    store.store(message(store.now(), 60, "first", key="k"))
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE sales_delayed SET first_sent = NULL"))
    before = store.now()
    rule = KeyRule.of("debounce", 30)
    store.store_keyed(message(before, 60, "second", key="k"), rule)
    found = store.get("second")
    assert found is not None
    assert before <= found.due_time - rule.max_wait <= store.now()  # type: ignore[operator]


@pytest.mark.long_runs("sqlite")
@pytest.mark.parametrize("database_url", ["postgresql", "sqlite"], indirect=True)
@pytest.mark.parametrize("on_key", OnKey)
def test_without_the_index_of_keys_nothing_is_called_a_duplicate(store: SqlDelayedMessageStore, on_key: OnKey) -> None:
    """Somebody has dropped it, or a backup was restored in part."""
    with store.engine.begin() as connection:
        connection.execute(text("DROP INDEX sales_delayed_keys"))
    new, rule = message(store.now(), 60, key="k"), KeyRule(on_key)
    with store.transaction() as transaction:
        transaction.store(message(store.now(), 60, "other"))
        with pytest.raises(StoreSetupError, match=r"ON CONFLICT .* run `delaystore setup`"):
            transaction.store_keyed(new, rule)
    with pytest.raises(StoreSetupError, match=r"ON CONFLICT .* run `delaystore setup`"):
        store.store_keyed(new, rule)
    with pytest.raises(StoreSetupError, match=r"ON CONFLICT .* run `delaystore setup`"):
        store.store_many([new])
    assert store.count() == 1
    assert store.repair(lambda _: None) == []
    assert store.store_keyed(new, rule) == new.message_id


@pytest.mark.parametrize("key", [None, "k"])
def test_what_another_unique_index_refuses_is_no_duplicate(
    store: SqlDelayedMessageStore, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlDelayedMessageStore, "key_timeout", 0.1)
    monkeypatch.setattr(store._parts.keyed, "timeout", 0.1)
    with store.engine.begin() as connection:
        connection.execute(text("CREATE UNIQUE INDEX yours ON sales_delayed (failure_count)"))
    store.store(message(store.now(), 60, "first"))
    refused = message(store.now(), 60, "second", key=key)
    for send in (lambda: store.store(refused), lambda: store.store_many([refused])):
        with pytest.raises(StoreError) as caught:
            send()
        assert not isinstance(caught.value, DuplicateMessageError), str(caught.value)
    with store.transaction() as transaction:
        with pytest.raises(StoreError) as caught:
            transaction.store(refused)
        assert not isinstance(caught.value, DuplicateMessageError), str(caught.value)
    assert [each.message_id for each in store.list().messages] == ["first"]
