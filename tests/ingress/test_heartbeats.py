"""An ingress tells the store that it lives, and how it is."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from typing_extensions import override

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.errors import StoreUnavailableError
from delaystore.ingress import health
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import IngressRecord
from tests.faults.patience import wait_until
from tests.ingress.ground import (
    ENDPOINT,
    LONG,
    QUEUE,
    REJECTED,
    Ground,
    await_settled,
    endpoint,
    queue_bound,
    running,
)
from tests.ingress.process import IngressProcess
from tests.integration.test_sql_operating import downgrade

pytestmark = pytest.mark.long_runs("mariadb", "sqlite")

SOON = timedelta(seconds=0.1)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "HEARTBEAT_EVERY", SOON)
    monkeypatch.setattr("delaystore.dispatcher.error_queue.REQUEST_EVERY", SOON.total_seconds())


@contextmanager
def reader(url: str) -> Iterator[Callable[[], list[IngressRecord]]]:
    """What another process is told of ingresses."""
    store = SqlDelayedMessageStore(url)
    with closing(DelayedDelivery(ENDPOINT, store)) as delivery:
        delivery.prepare()
        yield lambda: list(store.ingresses())


@contextmanager
def endpoint_of(store: SqlDelayedMessageStore) -> Iterator[DelayedDelivery]:
    """The endpoint that keeps what arrives in this store."""
    with closing(DelayedDelivery(ENDPOINT, store)) as delivery:
        yield delivery


def test_an_ingress_shows_while_it_runs_and_not_after_its_end(ground: Ground, database_url: str) -> None:
    with endpoint(database_url) as delivery, reader(database_url) as known:
        with running(delivery, ground.url) as ingress:
            ground.publish(b"good", delay=LONG)
            ground.publish(b"bad", delay="soon")
            ground.publish(b"worse", delay="later")
            await_settled(ingress, 3)
            wait_until(lambda: known() and known()[0].rejected_depth == 2, "it tells of the rejected queue")
            (record,) = known()
            assert (record.queue, record.rejected_queue) == (QUEUE, REJECTED)
            assert (record.host, record.pid) == (socket.gethostname(), os.getpid())
            assert (record.stored, record.rejected, record.unacknowledged) == (1, 2, 0)
            assert (record.problem, record.why_unacknowledged) == (None, None)
            assert dict(record.breakers) == {"intake": "disarmed", "consume": "disarmed"}
            assert record.rejected_seen is not None
            assert abs(record.heartbeat - record.rejected_seen) < timedelta(seconds=30)
            assert abs(record.heartbeat - datetime.now(UTC)) < timedelta(seconds=30)
            wait_until(lambda: known()[0].heartbeat > record.heartbeat, "another heartbeat")
            assert known()[0].since == record.since
        assert known() == []


@pytest.mark.long
def test_an_ingress_tells_why_it_takes_nothing_in_and_what_it_keeps_back(ground: Ground, sqlite_url: str) -> None:
    full = {"x-queue-type": "classic", "x-max-length": 0, "x-overflow": "reject-publish"}
    ground.channel.queue_declare(REJECTED, durable=True, arguments=full)
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url), reader(sqlite_url) as known:
        ground.publish(b"bad", delay="soon")
        wait_until(lambda: known() and known()[0].unacknowledged == 1, "it tells what is unacknowledged")
        assert REJECTED in (known()[0].why_unacknowledged or "")
        ground.channel.queue_delete(QUEUE)
        wait_until(lambda: "there is no queue" in (known()[0].problem or ""), "it tells that its queue is gone")
        queue_bound(ground.url, QUEUE, "orders", "#")
        wait_until(lambda: known()[0].problem is None, "it takes messages in again")


def test_an_ingress_that_is_killed_is_gone_until_another_takes_its_place(
    ground: Ground, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("records", "sql.operating._reports"):
        monkeypatch.setattr(f"delaystore.stores.{module}.ALIVE", timedelta(seconds=1))
    with reader(database_url) as known:
        with IngressProcess(database_url, ground.url) as process:
            wait_until(known, "it is told of")
            (killed,) = known()
            process.kill()
        wait_until(lambda: known()[0].is_offline(datetime.now(UTC)), "it is gone")
        with endpoint(database_url) as delivery, running(delivery, ground.url):
            wait_until(lambda: known()[0].ingress_id != killed.ingress_id, "another took its place")
            assert [each.pid for each in known()] == [os.getpid()]
        assert known() == [], "the killed one does not come back with the end of the other"


@pytest.mark.parametrize("kind", ["fails", "hangs"])
def test_a_store_that_takes_no_beats_stops_no_intake(
    ground: Ground, postgresql_url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeats = threading.Event()
    freed = threading.Event()

    class Silent(SqlDelayedMessageStore):
        @override
        def heartbeat_of_ingress(self, record: IngressRecord) -> None:
            heartbeats.set()
            if kind == "fails":
                raise StoreUnavailableError("gone")
            assert freed.wait(120)

        @override
        def retire_ingress(self, ingress_id: str) -> None:
            self.heartbeat_of_ingress(None)  # type: ignore[arg-type]

    with endpoint_of(Silent(postgresql_url)) as delivery:
        with running(delivery, ground.url) as ingress:
            assert heartbeats.wait(60)
            for number in range(500):
                ground.publish(b"%d" % number, delay=LONG)
            await_settled(ingress, 500)
            assert ingress.health().healthy
            if kind == "fails":
                wait_until(
                    lambda: "reporting the ingress of 'orders.ingress' to the store fails: gone" in caplog.text,
                    "the log tells",
                )
            ends = time.monotonic()
        assert time.monotonic() - ends < 20
        assert delivery.count() == 500
        freed.set()
    assert ground.depth(QUEUE) == 0


def test_an_ingress_tells_again_once_its_records_can_be_written(ground: Ground, postgresql_url: str) -> None:
    with (
        endpoint(postgresql_url) as delivery,
        running(delivery, ground.url) as ingress,
        reader(postgresql_url) as known,
    ):
        wait_until(known, "it is told of")
        store = delivery.operable_store()
        assert isinstance(store, SqlDelayedMessageStore)
        name = f"{ENDPOINT}_delayed_dispatchers"
        with store.engine.begin() as connection:
            connection.execute(text(f'ALTER TABLE "{name}" RENAME TO aside'))
        ground.publish(b"meanwhile", delay=LONG)
        await_settled(ingress, 1)
        assert ingress.health().healthy
        with store.engine.begin() as connection:
            connection.execute(text(f'ALTER TABLE aside RENAME TO "{name}"'))
        wait_until(lambda: known()[0].stored == 1, "it tells what it did meanwhile")


def test_on_tables_of_the_release_before_messages_are_taken_in(
    ground: Ground, database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("delaystore.stores.sql.operating.store.ASKED_AGAIN", 0.0)
    with endpoint(database_url) as owner:
        owner.prepare()
        tables = owner.operable_store()
        assert isinstance(tables, SqlDelayedMessageStore)
        downgrade(tables)
        with (
            endpoint(database_url, automatic_setup=False) as delivery,
            running(delivery, ground.url) as ingress,
        ):
            ground.publish(b"good", delay=LONG)
            await_settled(ingress, 1)
            assert ingress.health().healthy
            assert delivery.operable_store() is None
            assert "fails" not in caplog.text
            tables.setup_infrastructure()
            wait_until(lambda: len(tables.ingresses()) == 1, "it is told of after the upgrade")


def test_a_store_that_keeps_no_reports_of_ingresses_takes_messages_in(ground: Ground, sqlite_url: str) -> None:
    class Plain(SqlDelayedMessageStore):
        heartbeat_of_ingress = OperableDelayedMessageStore.heartbeat_of_ingress
        retire_ingress = OperableDelayedMessageStore.retire_ingress
        ingresses = OperableDelayedMessageStore.ingresses

    with endpoint_of(Plain(sqlite_url)) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"good", delay=LONG)
        await_settled(ingress, 1)
        assert list(delivery.operations.overview().ingresses or ()) == []
