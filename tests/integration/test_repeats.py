"""Messages that were delivered already: refused by sends, skipped or refused by loads."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDelivery
from delaystore.bulk.options import DeliveredRows, OnDuplicate
from delaystore.errors import ConfigurationError, DuplicateMessageError, MessageDeliveredError, StoreUnavailableError
from delaystore.message import DelayedMessage, KeyRule, OnKey
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.stores.history import HistoryFilter
from delaystore.stores.records import Ending, Way
from delaystore.testing import RecordingTransport
from delaystore.transports.rabbitmq import RabbitMQTransport
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2
from tests.integration.cli import CommandLine
from tests.integration.loading import load, row, rows
from tests.integration.sql_stores import opened, url_for

MONTH = timedelta(days=30)
Store = SqlDelayedMessageStore | InMemoryDelayedMessageStore


def message(message_id: str, seconds: float, **fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"destination": "billing", "body": b"pay", **fields}
    due_time = datetime.now(UTC) + timedelta(seconds=seconds)
    return DelayedMessage(message_id=message_id, due_time=due_time, **values)


@contextmanager
def keeping(url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(url) as store:
        store.keep_history(MONTH)
        yield store


@pytest.fixture(params=["memory", "sqlite", "postgresql", "mariadb"])
def kept(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store with a history."""
    if request.param == "memory":
        store: Store = InMemoryDelayedMessageStore()
        store.initialize("sales", TransactionMode.NONE)
    else:
        store = SqlDelayedMessageStore(request.getfixturevalue(f"prepared_{request.param}_url"))
        store.initialize("sales", TransactionMode.NONE)
    with closing(store):
        store.keep_history(MONTH)
        yield store


def deliver(store: Any, *ids: str, ending: Ending = Ending.DELIVERED) -> None:
    """Have these messages end."""
    store.store_many([message(each, -10) for each in ids])
    with store.transaction() as bound:
        fetched = bound.fetch_due(bound.now(), 100)
        assert {each.message_id for each in fetched} == set(ids)
        bound.remove_ended(fetched, ending, bound.now())


def endings(store: Any, message_id: str) -> list[Ending]:
    return [each.ending for each in store.history(HistoryFilter(message_id=message_id)).entries]


def test_a_delivered_message_is_rejected(kept: Store) -> None:
    deliver(kept, "gone")
    deliver(kept, "handed", ending=Ending.HANDED_OVER)
    deliver(kept, "cancelled", ending=Ending.CANCELLED)
    delivery = DelayedDelivery("sales", kept)

    def send(message_id: str, **more: Any) -> str:
        return delivery.send("billing", b"x", delay=60, message_id=message_id, if_delivered="reject", **more)

    for message_id in ("gone", "handed"):
        with pytest.raises(MessageDeliveredError, match="nothing was stored, because these messages were delivered al"):
            send(message_id)
        with pytest.raises(MessageDeliveredError):
            send(message_id, key="k", on_key="replace")
    assert delivery.count() == 0
    assert send("cancelled") == "cancelled"
    assert send("new", key="k") == "new"
    assert send("other", key="k", on_key="keep") == "new", "the waiting message's id"
    with pytest.raises(DuplicateMessageError) as caught:
        send("new", key="k")
    assert not isinstance(caught.value, MessageDeliveredError)
    sender = delivery.sending_as(Way.CLI, "ada")
    with pytest.raises(MessageDeliveredError):
        sender.send("billing", b"", delay=60, message_id="gone", key="k", on_key="replace", if_delivered="reject")
    assert delivery.message_ids("") == ["cancelled", "new"], "nothing was replaced"
    if isinstance(kept, SqlDelayedMessageStore):
        assert kept.changes() == [], "no entry of a replacement that was undone"
    assert delivery.send("billing", b"", delay=60, message_id="gone") == "gone", (
        "without if_delivered, a repeat is stored"
    )


def test_one_delivered_message_refuses_all_of_a_batch(kept: Store) -> None:
    deliver(kept, "gone")
    delivery = DelayedDelivery("sales", kept)
    batch = [message("a", 60), message("gone", 60), message("b", 60, key="k")]
    with pytest.raises(MessageDeliveredError) as caught:
        delivery.send_many(batch, if_delivered="reject")
    assert caught.value.message_ids == ("gone",)
    assert delivery.count() == 0
    assert delivery.send_many((each for each in batch if each.message_id != "gone"), if_delivered="reject") == 2
    assert delivery.send_many([message("c", 60, key="k")], on_key="keep", if_delivered="reject") == 0
    assert delivery.message_ids("") == ["a", "b"]


def test_more_delivered_ids_than_a_statement_looks_up(store: SqlDelayedMessageStore) -> None:
    store.keep_history(MONTH)
    deliver(store, *(f"m-{number:03d}" for number in range(100)))
    messages = [message(f"m-{number:03d}", 60) for number in range(3000)]
    with pytest.raises(MessageDeliveredError) as caught:
        store.store_new(messages)
    assert len(caught.value.message_ids) == 100
    assert store.count() == 0


def test_a_generator_of_more_messages_than_are_kept_in_memory(sqlite_url: str) -> None:
    with keeping(sqlite_url) as store:
        deliver(store, "m-00007")
        with pytest.raises(MessageDeliveredError):
            store.store_new(message(f"m-{number:05d}", 60) for number in range(20_100))
        assert store.count() == 0


@pytest.mark.parametrize("ended", [False, True])
def test_without_a_history_nothing_is_stored(store: SqlDelayedMessageStore, *, ended: bool) -> None:
    if ended:
        store.keep_history(MONTH)
        store.keep_history(None)
    delivery = DelayedDelivery("sales", store)
    with pytest.raises(ConfigurationError, match="if_delivered='reject' needs a history, and this endpoint keeps none"):
        delivery.send("billing", b"", delay=60, if_delivered="reject")
    with pytest.raises(ConfigurationError, match="needs a history"):
        delivery.send_many([message("a", 60)], if_delivered="reject")
    assert delivery.count() == 0


def test_memory_without_a_history() -> None:
    delivery = DelayedDelivery("sales", InMemoryDelayedMessageStore())
    with pytest.raises(ConfigurationError, match="needs a history"):
        delivery.send("billing", b"", delay=60, if_delivered="reject")
    with pytest.raises(ValueError, match="if_delivered must be one of send, reject, not 'perhaps'"):
        delivery.send("billing", b"", delay=60, if_delivered="perhaps")
    assert delivery.count() == 0


def test_native_delays_are_refused(sqlite_url: str) -> None:
    with keeping(sqlite_url) as store:
        transport = RabbitMQTransport("amqp://nowhere", delays=NSERVICEBUS_V2)
        delivery = DelayedDelivery("sales", store, transport, native=True)
        with pytest.raises(ConfigurationError, match="native=True sends messages past the store"):
            delivery.send("billing", b"", delay=60, if_delivered="reject")
        with pytest.raises(ConfigurationError, match="native=True"):
            delivery.send_many([message("a", 60)], if_delivered="reject")


def test_in_your_own_transaction(database_url: str, store: SqlDelayedMessageStore) -> None:
    store.keep_history(MONTH)
    deliver(store, "gone")
    delivery, engine = DelayedDelivery("sales", store), create_engine(database_url)
    with engine.begin() as connection:
        enlisted = delivery.enlist(connection)
        enlisted.send("billing", b"", delay=60, message_id="before")
        with pytest.raises(MessageDeliveredError):
            enlisted.send("billing", b"", delay=60, message_id="gone", if_delivered="reject")
        with pytest.raises(MessageDeliveredError):
            enlisted.send_many([message("a", 60), message("gone", 60, key="k")], if_delivered="reject")
        assert enlisted.send("billing", b"", delay=60, message_id="b", key="k", if_delivered="reject") == "b"
        assert enlisted.send_many([message("c", 60)], if_delivered="reject") == 1
    engine.dispose()
    assert store.message_ids("") == ["b", "before", "c"]


@pytest.mark.parametrize(("database", "driver"), [("sqlite", "aiosqlite"), ("postgresql", "asyncpg")])
def test_async(request: pytest.FixtureRequest, database: str, driver: str) -> None:
    url = url_for(request, database)
    with keeping(url) as store:
        deliver(store, "gone")

    async def send() -> list[str]:
        other = AsyncSqlDelayedMessageStore(url.replace(f"{database}:", f"{database}+{driver}:"))
        async with AsyncDelayedDelivery("sales", other) as delivery:
            with pytest.raises(MessageDeliveredError):
                await delivery.send("billing", b"", delay=60, message_id="gone", if_delivered="reject")
            with pytest.raises(MessageDeliveredError):
                await delivery.send_many([message("a", 60), message("gone", 60)], if_delivered="reject")
            async with other.engine.begin() as connection:
                enlisted = delivery.enlist(connection)
                with pytest.raises(MessageDeliveredError):
                    await enlisted.send("billing", b"", delay=60, message_id="gone", if_delivered="reject")
                await enlisted.send("billing", b"", delay=60, message_id="b", if_delivered="reject")
            return list(await delivery.message_ids(""))

    assert asyncio.run(send()) == ["b"]


Sending = Callable[[DelayedDelivery, str], Any]


def enlisted_send(delivery: DelayedDelivery, url: str) -> Any:
    engine = create_engine(url, isolation_level="READ COMMITTED")
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT count(*) FROM sales_delayed"))
            return delivery.enlist(connection).send(
                "billing", b"", delay=60, message_id="a", key="k", if_delivered="reject"
            )
    finally:
        engine.dispose()


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
@pytest.mark.parametrize(
    "send",
    [
        lambda delivery, _: delivery.send("billing", b"", delay=60, message_id="a", if_delivered="reject"),
        lambda delivery, _: delivery.send("billing", b"", delay=60, message_id="a", key="k", if_delivered="reject"),
        lambda delivery, _: delivery.send_many([message("a", 60), message("b", 60)], if_delivered="reject"),
        enlisted_send,
    ],
    ids=["send", "keyed", "many", "enlisted"],
)
@pytest.mark.parametrize("delivered", [True, False])
def test_a_message_that_is_just_being_delivered(
    request: pytest.FixtureRequest, database: str, send: Sending, *, delivered: bool
) -> None:
    url = url_for(request, database)
    with keeping(url) as store, opened(url) as other, ThreadPoolExecutor(1) as pool:
        store.store(message("a", -10, key="k"))
        delivery = DelayedDelivery("sales", other)
        with store.transaction() as bound:
            fetched = bound.fetch_due(bound.now(), 10)
            if delivered:
                bound.remove_ended(fetched, Ending.DELIVERED, bound.now())
            sending = pool.submit(send, delivery, url)
            time.sleep(1)
            assert not sending.done()
        error = sending.exception()
        assert isinstance(error, MessageDeliveredError if delivered else DuplicateMessageError)
        assert isinstance(error, MessageDeliveredError) == delivered
        assert store.message_ids("") == ([] if delivered else ["a"])


def test_many_senders_and_a_dispatcher_deliver_each_message_once(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    store.keep_history(MONTH)
    ids = [f"m-{number}" for number in range(40)]
    done = threading.Event()

    def send() -> None:
        with opened(database_url) as own:
            delivery = DelayedDelivery("sales", own)
            while not done.is_set():
                for each in ids:
                    try:
                        delivery.send("billing", each.encode(), delay=0, message_id=each, if_delivered="reject")
                    except (DuplicateMessageError, ConnectionError):
                        continue

    transport = RecordingTransport()
    with ThreadPoolExecutor(3) as pool, DelayedDelivery("sales", store, transport):
        senders = [pool.submit(send) for _ in range(3)]
        deadline = time.monotonic() + 30
        while len({each.message_id for each in transport.sent}) < len(ids) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        done.set()
        for each in senders:
            each.result()
    assert sorted(each.message_id for each in transport.sent) == sorted(ids)


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_ACTOR": "ada"}


def test_the_command_send(run: CommandLine, sqlite_url: str, tmp_path: Path) -> None:
    one = ["send", "billing", "x", "--delay", "60s", "--message-id", "gone", "--if-delivered"]
    with opened(sqlite_url):
        pass
    refused = run(*one, "reject")
    assert refused.code == 2
    assert "needs a history" in refused.err
    with keeping(sqlite_url) as store:
        deliver(store, "gone")
        refused = run(*one, "reject")
        assert refused.code == 2
        assert "because these messages were delivered already: message_id 'gone'" in refused.err
        assert "without --file, --if-delivered must be one of send, reject, not 'skip'" in run(*one, "skip").err
        assert "--if-delivered must be one of send, reject, not ''" in run(*one, "").err
        file = tmp_path / "a.csv"
        file.write_text("message_id,destination,delay,body\ngone,billing,60,x\nnew,billing,60,x\n")
        many = ["send", "--file", str(file), "--if-delivered"]
        failed = run(*many, "error")
        assert failed.code == 2
        assert "leave their rows out, or set --if-delivered to skip" in failed.err
        assert "with --file, --if-delivered must be one of load, skip, error, not 'reject'" in run(*many, "reject").err
        tried = run(*many, "skip", "--dry-run")
        assert "a dry run does not search the history" in tried.err
        skipped = run(*many, "skip", "--json").document
        assert (skipped["stored"], skipped["skipped"]) == (1, 1)
        assert store.message_ids("") == ["new"]
        assert run(*one, "send").code == 0
        assert store.message_ids("") == ["gone", "new"]


LOADS = pytest.mark.parametrize("key", [None, "k"])


@LOADS
def test_loads(store: SqlDelayedMessageStore, database_url: str, key: str | None) -> None:
    store.keep_history(MONTH)
    deliver(store, "m-00001", "m-00003")
    new = [row(f"m-{number:05d}", key=key and f"{key}-{number}") for number in range(5)]
    with pytest.raises(MessageDeliveredError, match="'m-00001', 'm-00003'; leave their rows out"):
        load(database_url, "refused", new, if_delivered=DeliveredRows.ERROR)
    assert store.count() == 0
    finished = load(database_url, "skipped", new, if_delivered=DeliveredRows.SKIP)
    assert (finished.stored, finished.skipped) == (3, 2)
    assert store.message_ids("") == ["m-00000", "m-00002", "m-00004"]
    again = load(database_url, "again", new, OnDuplicate.IGNORE, if_delivered=DeliveredRows.SKIP)
    assert (again.stored, again.skipped) == (0, 5)
    finished = load(database_url, "replaced", new, OnDuplicate.REPLACE, if_delivered=DeliveredRows.SKIP)
    assert (finished.stored, finished.skipped) == (3, 2)
    finished = load(database_url, "loaded", new, OnDuplicate.REPLACE)
    assert (finished.stored, finished.skipped) == (5, 0)


def test_a_load_of_delivered_rows_alone(store: SqlDelayedMessageStore, database_url: str) -> None:
    store.keep_history(MONTH)
    deliver(store, "m-00000")
    finished = load(database_url, "one", rows(1), if_delivered=DeliveredRows.SKIP)
    assert (finished.stored, finished.skipped) == (0, 1)


@pytest.mark.parametrize("rule", [DeliveredRows.SKIP, DeliveredRows.ERROR])
def test_a_load_without_a_history_fails_before_it_stages(
    store: SqlDelayedMessageStore, database_url: str, rule: DeliveredRows
) -> None:
    with pytest.raises(ConfigurationError, match="the option ifDelivered needs a history"):
        load(database_url, "one", rows(2), if_delivered=rule)
    assert store.loads() == []


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
@pytest.mark.parametrize("rule", [DeliveredRows.SKIP, DeliveredRows.ERROR])
@pytest.mark.parametrize("on_duplicate", OnDuplicate)
@LOADS
def test_a_load_of_a_message_that_is_just_being_delivered(
    request: pytest.FixtureRequest, database: str, rule: DeliveredRows, on_duplicate: OnDuplicate, key: str | None
) -> None:
    url = url_for(request, database)
    with keeping(url) as store, ThreadPoolExecutor(1) as pool:
        store.store(message("m-00001", -10))
        new = [row(f"m-{number:05d}", key=key and f"{key}-{number}") for number in range(3)]
        with store.transaction() as bound:
            bound.remove_ended(bound.fetch_due(bound.now(), 10), Ending.DELIVERED, bound.now())
            loading = pool.submit(load, url, "one", new, on_duplicate, if_delivered=rule)
            time.sleep(1.5)
            assert not loading.done()
        if rule is DeliveredRows.ERROR:
            with pytest.raises(MessageDeliveredError, match="m-00001"):
                loading.result()
            assert store.count() == 0
        else:
            assert (loading.result().stored, loading.result().skipped) == (2, 1)
            assert store.message_ids("") == ["m-00000", "m-00002"]


@LOADS
def test_replaced_messages_have_entries(store: SqlDelayedMessageStore, database_url: str, key: str | None) -> None:
    store.keep_history(MONTH)
    store.store_many([message("m-00001", 60, body=b"old"), message("m-00002", 60), message("other", 60, key="k-2")])
    new = [row(f"m-{number:05d}", key=key and f"{key}-{number}") for number in range(4)]
    finished = load(database_url, "one", new, OnDuplicate.REPLACE, key_rule=KeyRule(OnKey.REPLACE))
    assert finished.stored == 4
    for message_id in ("m-00001", "m-00002"):
        assert endings(store, message_id) == [Ending.REPLACED]
    assert endings(store, "other") == ([Ending.REPLACED] if key else [])
    assert endings(store, "m-00000") == endings(store, "m-00003") == []
    (entry,) = store.history(HistoryFilter(message_id="m-00001")).entries
    assert entry.body_hash == "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4"


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
@pytest.mark.parametrize("delivered", [True, False])
def test_a_replacement_waits_for_the_dispatcher_that_has_the_message(
    request: pytest.FixtureRequest, database: str, *, delivered: bool
) -> None:
    url = url_for(request, database)
    with keeping(url) as store, ThreadPoolExecutor(1) as pool:
        store.store(message("m-00001", -10))
        with store.transaction() as bound:
            fetched = bound.fetch_due(bound.now(), 10)
            if delivered:
                bound.remove_ended(fetched, Ending.DELIVERED, bound.now())
            loading = pool.submit(load, url, "one", rows(3), OnDuplicate.REPLACE)
            time.sleep(1.5)
            assert not loading.done()
        assert loading.result().stored == 3
        assert endings(store, "m-00001") == [Ending.DELIVERED if delivered else Ending.REPLACED]


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_a_message_that_comes_during_a_replacement_has_an_entry_or_waits(
    request: pytest.FixtureRequest, database: str
) -> None:
    """Sends of the very ids race with loads that replace them: each message that was stored has one end, or waits."""
    url = url_for(request, database)
    with keeping(url) as store, ThreadPoolExecutor(2) as pool:
        stored = 0

        def send() -> int:
            with opened(url) as own:
                delivery, sent = DelayedDelivery("sales", own), 0
                for number in list(range(300)) * 2:
                    try:
                        delivery.send("billing", b"", delay=3600, message_id=f"m-{number:05d}")
                    except DuplicateMessageError:
                        continue
                    sent += 1
                return sent

        sending = [pool.submit(send) for _ in range(2)]
        finished = 0
        for number in count():
            try:
                stored += load(url, f"load-{number}", rows(300), OnDuplicate.REPLACE).stored
                finished += 1
            except StoreUnavailableError:  # conflicts with these very senders, again and again
                continue
            if finished >= 6:
                break
        stored += sum(each.result() for each in sending)
        found = store.history(HistoryFilter(ending=Ending.REPLACED), limit=10_000).entries
        assert len(found) + store.count() == stored


def test_a_detached_connection_can_be_enlisted(database_url: str, store: SqlDelayedMessageStore) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        connection.detach()
        DelayedDelivery("sales", store).enlist(connection).send("billing", b"", delay=60, message_id="a")
        connection.commit()
    engine.dispose()
    assert store.message_ids("") == ["a"]
