"""Partitions: what is stored in bulk waits in tables of its own, and nobody but the statistics can tell."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from delaystore.bulk.options import OnDuplicate
from delaystore.dispatcher import Dispatcher, _loop
from delaystore.errors import DuplicateMessageError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.migrations.targets._stores import store_each
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.testing import RecordingTransport
from delaystore.transports.abc import OutcomeKind
from tests.integration.loading import load, row
from tests.integration.partitions import ROWS
from tests.integration.sql_stores import message, opened


def in_bulk(store: SqlDelayedMessageStore, seconds: float = 60) -> list[DelayedMessage]:
    """Messages that were stored at once."""
    now = store.now()
    messages = [message(now, seconds + number) for number in range(ROWS)]
    assert store.store_many(messages) == ROWS
    return messages


def tables(store: SqlDelayedMessageStore) -> dict[str, int]:
    """How many messages wait in which table."""
    with store.transaction() as transaction:
        rows = transaction.connection.execute(
            text("SELECT CAST(tableoid::regclass AS text), count(*) FROM sales_delayed GROUP BY 1")
        )
        return {row[0]: row[1] for row in rows}


def test_what_is_stored_in_bulk_waits_in_a_partition(store: SqlDelayedMessageStore) -> None:
    messages = in_bulk(store)
    (name,) = tables(store)
    assert name.startswith("sales_delayed_shelf_")
    assert store.list(limit=100).messages == messages
    assert store.count() == ROWS
    assert store.get(messages[3].message_id) == messages[3]
    assert store.next() == messages[0].due_time


def test_what_waits_in_a_partition_is_dispatched_as_any_other(store: SqlDelayedMessageStore) -> None:
    in_bulk(store, -60)
    store.store(message(store.now(), -100))
    with store.transaction() as transaction:
        batch = transaction.fetch_due(store.now(), 5)
        assert transaction.increment_failure_count(batch[1], store.now() + timedelta(hours=1))
        assert transaction.remove_many([batch[0], *batch[2:]]) == 4
    assert store.count() == ROWS + 1 - 4
    with store.transaction() as transaction:
        assert transaction.remove_many(transaction.fetch_due(store.now(), 100)) == ROWS + 1 - 5


def test_a_message_at_the_same_place_of_another_table_stays(store: SqlDelayedMessageStore) -> None:
    """PostgreSQL numbers the rows of each table by themselves."""
    partitioned = in_bulk(store, -60)
    plain = message(store.now(), -100)
    store.store(plain)
    with store.transaction() as transaction:
        transaction.fetch_due(store.now(), 100)
        assert transaction.remove(plain)
    assert store.get(partitioned[0].message_id) == partitioned[0]
    with store.transaction() as transaction:
        fetched = transaction.fetch_due(store.now(), 100)
        assert transaction.remove(fetched[0])
    assert store.count() == ROWS - 1


def test_a_message_in_a_partition_is_cancelled_and_rescheduled(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    first, second, third, *_ = in_bulk(store, -60)
    assert store.cancel(first.message_id) is ManagementOutcome.DONE
    assert store.cancel(first.message_id) is ManagementOutcome.NOT_FOUND
    later = store.now() + timedelta(hours=1)
    assert store.reschedule(second.message_id, later) is ManagementOutcome.DONE
    with other.transaction() as transaction:
        transaction.fetch_due(other.now(), 1)
        assert store.cancel(third.message_id) is ManagementOutcome.BEING_DISPATCHED
    assert store.count() == ROWS - 1


def test_an_id_is_taken_wherever_it_waits(store: SqlDelayedMessageStore) -> None:
    taken = in_bulk(store)[0]
    now = store.now()
    with pytest.raises(DuplicateMessageError, match=taken.message_id):
        store.store(message(now, 5, taken.message_id))
    with pytest.raises(DuplicateMessageError, match=taken.message_id):
        store.store(message(now, 3600, taken.message_id))
    with pytest.raises(DuplicateMessageError, match=taken.message_id):
        store.store_many([message(now, 5, taken.message_id), message(now)])
    with pytest.raises(DuplicateMessageError, match=taken.message_id):
        store.store_many([message(now, 5, taken.message_id), *(message(now) for _ in range(ROWS))])
    plain = message(now, 70)
    store.store(plain)
    with pytest.raises(DuplicateMessageError, match=plain.message_id):
        store.store_many([message(now, 5, plain.message_id), *(message(now) for _ in range(ROWS))])
    with pytest.raises(DuplicateMessageError, match="twice"):
        store.store_many([message(now, 5, "twice"), *(message(now) for _ in range(ROWS)), message(now, 6, "twice")])
    assert store.count() == ROWS + 1
    assert len(tables(store)) == 2


def test_an_empty_partition_goes(store: SqlDelayedMessageStore) -> None:
    in_bulk(store, -60)
    with store.transaction() as transaction:
        assert transaction.remove_many(transaction.fetch_due(store.now(), 100)) == ROWS
    kept = in_bulk(store)
    store.partitions.clean_up()
    assert len(partition_names(store)) == 1
    assert store.count() == len(kept)


def test_a_partition_that_others_read_stays(store: SqlDelayedMessageStore, other: SqlDelayedMessageStore) -> None:
    in_bulk(store, -60)
    with store.transaction() as transaction:
        transaction.remove_many(transaction.fetch_due(store.now(), 100))
    with other.transaction() as transaction:
        assert transaction.count() == 0
        store.partitions.clean_up()
        assert len(partition_names(store)) == 1
    store.partitions.clean_up()
    assert partition_names(store) == []


@pytest.mark.parametrize("committed", [True, False])
def test_an_insert_that_is_under_way_is_waited_for(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore, committed: bool
) -> None:
    now = store.now()
    mine = message(now, 5)
    outcome: list[int | Exception] = []

    def store_in_bulk() -> None:
        try:
            outcome.append(store.store_many([mine, *(message(now) for _ in range(ROWS))]))
        except DuplicateMessageError as error:
            outcome.append(error)

    with other.engine.connect() as connection, connection.begin() as transaction:
        other.enlist(connection).store(message(now, 9, mine.message_id))
        thread = threading.Thread(target=store_in_bulk)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        transaction.commit() if committed else transaction.rollback()
    thread.join()
    if committed:
        assert isinstance(outcome[0], DuplicateMessageError)
        assert store.count() == 1
    else:
        assert outcome == [ROWS + 1]
        assert store.count() == ROWS + 1
        assert len(tables(store)) == 1


def test_one_of_several_senders_of_an_id_succeeds(postgresql_url: str) -> None:
    """Two store all ids at once, three one after the other, in turn from both ends."""
    ids = [f"order-{number}" for number in range(60)]
    succeeded: list[str] = []

    def all_at_once(store: SqlDelayedMessageStore) -> None:
        for part in range(0, len(ids), ROWS):
            with suppress(DuplicateMessageError, StoreUnavailableError):
                store.store_many(message(store.now(), 60, one) for one in ids[part : part + ROWS])
                succeeded.extend(ids[part : part + ROWS])

    def one_by_one(store: SqlDelayedMessageStore, order: list[str]) -> None:
        for one in order:
            with suppress(DuplicateMessageError, StoreUnavailableError):
                store.store(message(store.now(), 60, one))
                succeeded.append(one)

    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        stores = [stack.enter_context(opened(postgresql_url)) for _ in range(5)]
        running = [pool.submit(all_at_once, store) for store in stores[:2]]
        running += [
            pool.submit(one_by_one, store, order)
            for store, order in zip(stores[2:], [ids, ids[::-1], ids], strict=True)
        ]
        for future in running:
            future.result(timeout=120)
        one_by_one(stores[0], ids)  # what both sides refused, as the other was at it
        assert sorted(succeeded) == sorted(ids)
        assert sorted(one.message_id for one in stores[0].list(limit=1000).messages) == sorted(ids)


def test_rows_are_inserted_where_others_take_too_long(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(SqlDelayedMessageStore.partition_limits, timeout=0.2)
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", limits)
    now = store.now()
    with other.engine.connect() as connection, connection.begin():
        other.enlist(connection).store(message(now, 9))
        in_bulk(store)
        assert tables(store) == {"sales_delayed": ROWS}
    assert store.count() == ROWS + 1
    store.partitions.clean_up()
    assert partition_names(store) == []


def test_what_a_dead_process_left_is_dropped(store: SqlDelayedMessageStore) -> None:
    abandoned(store)
    store.clean_up()
    assert partition_names(store) == []
    assert store.count() == 0


def test_a_dispatcher_cleans_up(store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_loop, "CLEAN_UP_EVERY", 0.1)
    in_bulk(store, -60)
    dispatcher = Dispatcher(store, RecordingTransport(), DelayedDeliverySettings(maximum_sleep=timedelta(seconds=1)))
    dispatcher.start()
    deadline = time.monotonic() + 20
    while partition_names(store) and time.monotonic() < deadline:
        time.sleep(0.05)
    dispatcher.stop()
    assert store.count() == 0
    assert partition_names(store) == []


def test_an_id_that_is_being_stored_is_no_duplicate(store: SqlDelayedMessageStore) -> None:
    """Whoever takes a duplicate for a message that waits would lose it with the partition."""
    announced = abandoned(store)
    again = message(store.now(), 5, announced)
    with pytest.raises(StoreUnavailableError, match=f"{announced}.*try again"):
        store.store(again)
    with pytest.raises(StoreUnavailableError, match="try again"):
        store.store(message(store.now(), 3600, announced))
    with pytest.raises(StoreUnavailableError, match="try again"):
        store.store_many([again])
    with store.engine.connect() as connection, pytest.raises(StoreUnavailableError, match="try again"):
        store.enlist(connection).store(again)
    store.partitions.clean_up()
    store.store(again)
    assert store.count() == 1


def test_a_migration_stores_the_others_of_a_batch(store: SqlDelayedMessageStore) -> None:
    batch = [message(store.now(), 5, abandoned(store)), message(store.now(), 5)]
    outcomes = store_each(store, batch)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.UNCONFIRMED, OutcomeKind.DELIVERED]
    assert store.count() == 1


@pytest.mark.parametrize("on_duplicate", OnDuplicate)
def test_a_load_skips_nothing_that_is_being_stored(
    store: SqlDelayedMessageStore, postgresql_url: str, on_duplicate: OnDuplicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = abandoned(store)
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", PartitionLimits())
    finished = load(postgresql_url, "one", [row(announced, 5)], on_duplicate)
    assert (finished.stored, finished.skipped) == (1, 0)
    assert store.count() == 1


def abandoned(store: SqlDelayedMessageStore) -> str:
    """A message_id in a partition whose maker has died before it was attached."""
    messages = in_bulk(store)
    with store.transaction() as transaction:
        (name,) = partition_names(store)
        transaction.connection.exec_driver_sql(f"ALTER TABLE {name} NO INHERIT sales_delayed")
    return messages[0].message_id


@pytest.mark.parametrize("name", ["50%s %(x)s :colon 'é\"`\\ {brace}", "x" * 50])
def test_tables_of_any_name_have_partitions(postgresql_url: str, name: str) -> None:
    with opened(postgresql_url, table=name) as store:
        messages = in_bulk(store, -60)
        assert len(partition_names(store)) == 1
        assert store.list().messages == messages
        with pytest.raises(DuplicateMessageError):
            store.store(messages[0])
        with store.transaction() as transaction:
            assert transaction.remove_many(transaction.fetch_due(store.now(), 100)) == ROWS
        store.clean_up()
        assert partition_names(store) == []


def test_a_partition_goes_with_the_infrastructure(store: SqlDelayedMessageStore) -> None:
    in_bulk(store)
    store.remove_infrastructure()
    store.setup_infrastructure()
    assert store.count() == 0
    assert partition_names(store) == []


def partition_names(store: SqlDelayedMessageStore) -> list[str]:
    with store.engine.connect() as connection:
        found = connection.execute(text("SELECT relname FROM pg_class WHERE relname ~ '_shelf_[0-9a-f]{20}$'"))
        return list(found.scalars())
