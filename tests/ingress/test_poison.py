"""A message that the store cannot take stops no other one."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import pytest
from sqlalchemy import make_url
from typing_extensions import override

from delaystore import DelayedDelivery, DelayedMessage, SqlDelayedMessageStore
from delaystore.errors import StorePermissionError, StoreUnavailableError
from delaystore.ingress import _intake
from delaystore.message import KeyRule
from delaystore.stores.abc import REJECT
from tests.faults.patience import wait_until
from tests.ingress.ground import ENDPOINT, LONG, QUEUE, REJECTED, Ground, await_settled, endpoint, running
from tests.servers import MariaDB, PostgreSQL
from tests.servers.postgresql import connect

ESCAPED: Final = 9 * 1024 * 1024
"""Bytes that MariaDB is sent as twice as many: more than it takes in one statement."""


FULL: Final = {"x-queue-type": "classic", "x-max-length": 0, "x-overflow": "reject-publish"}
"""Arguments of a queue that takes nothing."""


class Faulty(SqlDelayedMessageStore):
    """Fails on bodies that begin with `bad`, and takes all others."""

    error: Exception | None = None

    @override
    def store_many(self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT) -> int:
        listed = list(messages)
        if self.error is not None and any(message.body.startswith(b"bad") for message in listed):
            raise self.error
        return super().store_many(listed, rule)


@contextmanager
def faulty(url: str, error: Exception) -> Iterator[tuple[DelayedDelivery, Faulty]]:
    """An endpoint whose store fails so on bodies that begin with `bad`."""
    store = Faulty(url)
    store.error = error
    with closing(DelayedDelivery(ENDPOINT, store)) as delivery:
        yield delivery, store


def test_what_is_too_large_for_the_database_is_put_aside(ground: Ground, mariadb_url: str) -> None:
    with endpoint(mariadb_url, max_body_bytes=2 * ESCAPED) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"before", delay=LONG)
        ground.publish(bytes(ESCAPED), delay=LONG)
        ground.publish(b"after", delay=LONG)
        await_settled(ingress, 3)
        assert (ingress.health().stored, ingress.health().rejected) == (2, 1)
        (rejected,) = ground.receive(REJECTED)
        assert rejected.body == bytes(ESCAPED)
        assert "max_allowed_packet" in rejected.properties.headers["delaystore.rejected-reason"]


def test_what_a_database_hangs_up_on_is_put_aside(ground: Ground, start_server: Any) -> None:
    """A server that takes little closes the connection while the rest is still being sent."""
    server: MariaDB = start_server(lambda: MariaDB({"max_allowed_packet": "1M"}))
    with endpoint(server.create_database()) as delivery, running(delivery, ground.url) as ingress:
        for size in (1, 2**20, 400_000, 5 * 2**20):
            ground.publish(b"x" * size, delay=LONG)
        await_settled(ingress, 4)
        assert (ingress.health().stored, ingress.health().rejected) == (2, 2)
        rejected = ground.receive(REJECTED, 2)
    assert [len(one.body) for one in rejected] == [2**20, 5 * 2**20]
    assert all("max_allowed_packet" in one.properties.headers["delaystore.rejected-reason"] for one in rejected)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("error", [StoreUnavailableError("gone"), RuntimeError("unforeseen")])
def test_what_the_store_fails_on_is_unacknowledged_and_the_others_go_on(
    ground: Ground, sqlite_url: str, error: Exception, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.ingress._intake._RETRY_TIMEOUT", 1.0)
    monkeypatch.setattr("delaystore.ingress._entries._TRY_EVERY", 1.0)
    with faulty(sqlite_url, error) as (delivery, store):
        for body in [b"bad"] if alone else [b"one", b"bad", b"two"]:
            ground.publish(body, delay=LONG)
        with running(delivery, ground.url, batch_size=1 if alone else 3) as ingress:
            wait_until(lambda: ingress.health().unacknowledged == 1, "the bad one is unacknowledged")
            before = ingress.health().stored
            for number in range(3):
                ground.publish(b"%d" % number, delay=LONG)
                await_settled(ingress, before + number + 1)
                assert any(str(error) in problem for problem in ingress.health().problems)
            store.error = None
            await_settled(ingress, before + 4)
            wait_until(lambda: ingress.health().healthy, "all is well")
    assert ground.depth(QUEUE) == 0


def test_what_the_store_fails_on_for_long_is_rejected(
    ground: Ground, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_intake, "FAILS_FOR", 3.0)
    with faulty(sqlite_url, RuntimeError("unforeseen")) as (delivery, _), running(delivery, ground.url) as ingress:
        for body in (b"one", b"bad", b"two"):
            ground.publish(body, delay=LONG)
        await_settled(ingress, 2)
        wait_until(lambda: ingress.health().unacknowledged == 1, "the bad one is unacknowledged")
        ground.publish(b"three", delay=LONG)
        await_settled(ingress, 4)
        assert (ingress.health().stored, ingress.health().rejected) == (3, 1)
        (rejected,) = ground.receive(REJECTED)
        assert rejected.body == b"bad"
        assert rejected.properties.headers["delaystore.rejected-reason"] == "the store fails on it: unforeseen"
        assert ingress.health().healthy
    assert ground.depth(QUEUE) == 0


@pytest.mark.long
@pytest.mark.parametrize(("bad", "settings"), [(b"bad", {"prefetch": 10}), (b"bad" * 2**17, {"memory_bytes": 2**20})])
def test_what_the_store_fails_on_is_rejected_sooner_where_others_would_have_no_room(
    ground: Ground, sqlite_url: str, bad: bytes, settings: dict[str, int]
) -> None:
    with (
        faulty(sqlite_url, RuntimeError("unforeseen")) as (delivery, _),
        running(delivery, ground.url, **settings) as ingress,
    ):
        for number in range(12):
            ground.publish(bad, delay=LONG)
            ground.publish(b"%d" % number, delay=LONG)
        for number in range(12, 36):  # it rejects nothing before it has stored another one
            ground.publish(b"%d" % number, delay=LONG)
            time.sleep(0.5)
        wait_until(lambda: ingress.health().stored == 36 and ingress.health().rejected >= 7, "they go on")
        assert ingress.health().unacknowledged <= 5
    assert ground.depth(QUEUE) + ground.depth(REJECTED) == 12


@pytest.mark.long
def test_while_the_store_takes_nothing_else_nothing_is_rejected(
    ground: Ground, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_intake, "FAILS_FOR", 1.0)
    monkeypatch.setattr("delaystore.ingress._entries._TRY_EVERY", 1.0)
    with faulty(sqlite_url, RuntimeError("unforeseen")) as (delivery, _), running(delivery, ground.url) as ingress:
        ground.publish(b"bad", delay=LONG)
        wait_until(lambda: ingress.health().unacknowledged == 1, "it is unacknowledged")
        time.sleep(4)
        assert (ingress.health().unacknowledged, ingress.health().rejected) == (1, 0)
        ground.publish(b"good", delay=LONG)
        await_settled(ingress, 2)


@pytest.mark.long
def test_in_an_outage_nothing_is_rejected(
    private_postgresql: PostgreSQL, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_intake, "FAILS_FOR", 8.0)
    with (
        faulty(private_postgresql.create_database(), RuntimeError("unforeseen")) as (delivery, store),
        running(delivery, ground.url) as ingress,
    ):
        ground.publish(b"bad", delay=LONG)
        wait_until(lambda: ingress.health().unacknowledged == 1, "it is unacknowledged")
        private_postgresql.kill()
        store.error = None
        time.sleep(12)
        private_postgresql.start()
        await_settled(ingress, 1)
        assert (ingress.health().stored, ingress.health().rejected) == (1, 0)


@pytest.mark.long
def test_what_no_rejected_queue_takes_leaves_memory_to_others(ground: Ground, sqlite_url: str) -> None:
    ground.channel.queue_declare(REJECTED, durable=True, arguments=FULL)
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url, memory_bytes=2**20) as ingress:
        for number in range(12):
            ground.publish(b"%02d" % number + bytes(300_000), delay="soon")
            ground.publish(b"%d" % number, delay=LONG)
        await_settled(ingress, 12)
        wait_until(
            lambda: ingress.health().unacknowledged == 12, f"all bad ones are unacknowledged: {ingress.health()}"
        )
        ground.channel.queue_delete(REJECTED)
        ground.channel.queue_declare(REJECTED, durable=True)
        await_settled(ingress, 24)
        wait_until(lambda: ingress.health().healthy, "all is well")
        assert sorted(body[:2] for body in ground.drain(REJECTED)) == [b"%02d" % number for number in range(12)]
    assert ground.depth(QUEUE) == 0


@pytest.mark.long
def test_as_many_as_may_be_prefetched_are_told(ground: Ground, sqlite_url: str) -> None:
    ground.channel.queue_declare(REJECTED, durable=True, arguments=FULL)
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url, prefetch=3) as ingress:
        for _ in range(3):
            ground.publish(b"bad", delay="soon")
        wait_until(lambda: "nothing else comes in" in str(ingress.health().problems), "it says so")
        ground.publish(b"good", delay=LONG)
        ground.channel.queue_delete(REJECTED)
        ground.channel.queue_declare(REJECTED, durable=True)
        await_settled(ingress, 4)
        wait_until(lambda: ingress.health().healthy, "all is well")


def test_what_the_database_refuses_for_a_while_is_not_rejected(ground: Ground, postgresql_url: str) -> None:
    """It says nothing about the messages: somebody has made a trigger, or a pooler is configured wrongly."""
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"first", delay=LONG)
        await_settled(ingress, 1)
        with connect(make_url(postgresql_url)) as connection:
            connection.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not now'; END$$;"
                f"CREATE TRIGGER refuse BEFORE INSERT ON {ENDPOINT}_delayed EXECUTE FUNCTION refuse()"
            )
            for number in range(3):
                ground.publish(b"%d" % number, delay=LONG)
            wait_until(lambda: ingress.health().breakers["intake"] != "disarmed", "the database refuses them")
            connection.execute(f"DROP TRIGGER refuse ON {ENDPOINT}_delayed")
        await_settled(ingress, 4)
        assert (ingress.health().stored, ingress.health().rejected) == (4, 0)
        assert ground.depth(REJECTED) == 0


def test_a_saga_with_many_timeouts_loses_them_all(ground: Ground, sqlite_url: str) -> None:
    saga = str(uuid4())
    with endpoint(sqlite_url) as delivery:
        due_time = datetime.now(UTC) + timedelta(hours=1)
        delivery.send_many(
            DelayedMessage(message_id=f"{saga}/{number}", destination="Sales", due_time=due_time, body=b"")
            for number in range(1100)
        )
        headers = {"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": saga}
        ground.publish(b"", headers=headers)
        with running(delivery, ground.url, forms=["nservicebus"]) as ingress:
            await_settled(ingress, 1)
            assert ingress.health().applied == 1
            assert delivery.count() == 0


def test_a_store_that_answers_and_cannot_be_set_up_is_not_asked_without_a_pause(
    ground: Ground, sqlite_url: str
) -> None:
    asked = []

    class Denied(DelayedDelivery):
        @override
        def prepare(self) -> None:
            asked.append(1)
            raise StorePermissionError("no right")

    with endpoint(sqlite_url) as made:
        made.prepare()
    with (
        closing(Denied(ENDPOINT, SqlDelayedMessageStore(sqlite_url))) as delivery,
        running(delivery, ground.url) as ingress,
    ):
        wait_until(lambda: len(asked) > 2, "it tries again")
        assert ingress.health().breakers["intake"] == "armed"
        assert "no right" in ingress.health().problems[0]
        before = len(asked)
        time.sleep(1)
        assert len(asked) <= before + 2


def test_a_forked_child_has_no_ingress_running(ground: Ground, sqlite_url: str) -> None:
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url) as ingress:
        wait_until(lambda: ingress.health().connected, "it is at work")
        child = os.fork()
        if not child:
            os._exit(0 if not ingress.health().running and ingress.stop(5) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ground.publish(b"pay", delay=LONG)
        await_settled(ingress, 1)
