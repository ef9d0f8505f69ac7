"""Whatever dies, each message is in its queue or in the store."""

import random
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime

import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.transports.rabbitmq import consuming
from tests.faults.patience import wait_until
from tests.faults.scale import scaled
from tests.ingress.ground import ENDPOINT, LONG, QUEUE, Ground, await_settled, bodies, endpoint, running, settled
from tests.ingress.process import IngressProcess
from tests.servers import PostgreSQL, RabbitMQ

KILLS = scaled(4, 40)
PREFETCH = 200


def test_an_ingress_killed_again_and_again_loses_nothing(ground: Ground, postgresql_url: str) -> None:
    count = KILLS * 1000
    with endpoint(postgresql_url) as delivery:

        def stored() -> Counter[int]:
            return Counter(int(one.body) for one in delivery.list(limit=10 * count).messages)

        delivery.prepare()
        for kill in range(KILLS):
            with IngressProcess(postgresql_url, ground.url, batch_size=100, prefetch=PREFETCH) as victim:
                began = delivery.count()
                for number in range(kill * 1000, (kill + 1) * 1000):
                    message_id = f"message-{number}" if number % 2 else None
                    ground.publish(b"%d" % number, delay=LONG, message_id=message_id)
                wait_until(lambda began=began: delivery.count() > began, "it is at work")
                time.sleep(random.uniform(0, 0.3))
                victim.kill()
        with running(delivery, ground.url) as survivor:
            wait_until(lambda: stored().keys() == set(range(count)), "all are stored", pause=1)
            assert survivor.health().discarded == survivor.health().rejected == 0
        twice = [number for number, times in stored().items() if times > 1]
    assert all(number % 2 == 0 for number in twice), "a message with an id is stored once"
    assert len(twice) <= KILLS * PREFETCH


@pytest.mark.long  # a short outage, below, tells most of it
def test_while_the_store_is_down_messages_stay_in_their_queue(private_postgresql: PostgreSQL, ground: Ground) -> None:
    url = private_postgresql.create_database()
    with endpoint(url) as delivery, running(delivery, ground.url, prefetch=50) as ingress:
        ground.publish(b"0", delay=LONG)
        await_settled(ingress, 1)
        private_postgresql.kill()
        for number in range(1, 300):
            ground.publish(b"%d" % number, delay=LONG)
        wait_until(lambda: "triggered" not in ingress.health().breakers["intake"] and ingress.health().obstacle, "told")
        wait_until(lambda: ground.depth(QUEUE) == 299, "all went back to their queue")
        assert not ingress.health().healthy
        private_postgresql.start()
        await_settled(ingress, 300)
        assert ingress.health().healthy
        assert sorted(int(one.body) for one in delivery.list(limit=1000).messages) == list(range(300))


def test_a_short_outage_of_the_store_repeats_nothing(private_postgresql: PostgreSQL, ground: Ground) -> None:
    url = private_postgresql.create_database()
    with endpoint(url) as delivery, running(delivery, ground.url, batch_size=50) as ingress:
        ground.publish(b"0", delay=LONG)
        await_settled(ingress, 1)
        private_postgresql.kill()
        for number in range(1, 200):
            ground.publish(b"%d" % number, delay=LONG)
        private_postgresql.start()
        await_settled(ingress, 200)
        wait_until(lambda: delivery.count() == 200, "all are stored")
        assert sorted(int(one.body) for one in delivery.list(limit=1000).messages) == list(range(200))


@pytest.mark.long
@pytest.mark.parametrize(("body", "header", "count"), [(2**20, 0, 150), (0, 100_000, 1500)])
def test_a_frozen_store_does_not_fill_the_memory(
    private_postgresql: PostgreSQL, ground: Ground, body: int, header: int, count: int
) -> None:
    url = private_postgresql.create_database()
    with endpoint(url) as delivery:
        delivery.prepare()
        with IngressProcess(url, ground.url, memory_bytes=8 * 1024 * 1024) as process:
            ground.publish(b"first", delay=LONG)
            wait_until(lambda: delivery.count() == 1, "it is at work")
            before = process.memory
            private_postgresql.pause()
            for _ in range(count):
                ground.publish(random.randbytes(body), delay=LONG, headers={"long": "x" * header})
            time.sleep(3)
            grown = process.memory - before
            private_postgresql.resume()
            wait_until(lambda: delivery.count() == count + 1, "all are stored")
    assert grown < 60 * 1024 * 1024, "150 MB were published"


@pytest.mark.long
def test_while_the_store_is_frozen_heartbeats_are_answered_although_memory_is_full(
    private_postgresql: PostgreSQL, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_HEARTBEAT", 1)
    monkeypatch.setattr(consuming, "_LONGEST_UNREAD", 0.2)
    url = private_postgresql.create_database()
    with endpoint(url) as delivery, running(delivery, ground.url, memory_bytes=2**20) as ingress:
        ground.publish(b"first", delay=LONG)
        await_settled(ingress, 1)
        private_postgresql.pause()
        for _ in range(8):
            ground.publish(bytes(2**19), delay=LONG)
        time.sleep(5)  # a broker that hears nothing ends the connection after some two seconds
        assert ground.depth(QUEUE) == 0, "they did not go back"
        private_postgresql.resume()
        await_settled(ingress, 9)
        assert delivery.count() == 9, "none came twice"


@pytest.mark.long
def test_a_broker_that_goes_and_comes_back(private_rabbitmq: RabbitMQ, postgresql_url: str) -> None:
    url = private_rabbitmq.create_vhost()
    with endpoint(postgresql_url) as delivery:
        with Ground(url) as ground:
            for number in range(100):
                ground.publish(b"%d" % number, delay=LONG, message_id=f"message-{number}")
            private_rabbitmq.sync_queues()
        with running(delivery, url, prefetch=10, batch_size=5) as ingress:
            wait_until(lambda: settled(ingress) > 20, "it is at work")
            private_rabbitmq.kill()
            wait_until(lambda: ingress.health().obstacle, "it notices")
            private_rabbitmq.start()
            await_settled(ingress, 100)
            wait_until(lambda: delivery.count() == 100, "all are stored")
            wait_until(lambda: ingress.health().healthy, "it is well again")


@pytest.mark.long
def test_a_broker_that_takes_nothing_does_not_slow_down_what_may_be_forwarded_at_once(
    private_rabbitmq: RabbitMQ, sqlite_url: str
) -> None:
    url = private_rabbitmq.create_vhost()
    with Ground(url) as ground:
        for number in range(8):
            ground.publish(b"%d" % number, delay=LONG)
        private_rabbitmq.alarm("memory")
        with endpoint(sqlite_url) as delivery, running(delivery, url, batch_size=1, direct_below=2 * LONG) as ingress:
            await_settled(ingress, 8, patience=20)  # each batch would wait five seconds for a confirm
            assert (ingress.health().stored, ingress.health().passthrough) == (8, 0)
            private_rabbitmq.clear_alarms()


def test_due_times_count_from_the_arrival_in_the_ingress(private_postgresql: PostgreSQL, ground: Ground) -> None:
    url = private_postgresql.create_database()
    with endpoint(url, ground.url) as delivery, running(delivery, ground.url):
        ground.publish(b"before", delay=0)
        assert bodies(ground.receive()) == [b"before"]
        private_postgresql.pause()
        published = datetime.now(UTC)
        ground.publish(b"meanwhile", delay=3000)
        time.sleep(2)
        private_postgresql.resume()
        (received,) = ground.receive()
    late = received.at - published.timestamp() - 3
    assert 0 <= late < 1.5


class FarStore(SqlDelayedMessageStore):
    """Its answers take a while."""

    def latest_now(self) -> datetime:
        read = super().latest_now()
        time.sleep(0.4)
        return read


def test_no_delay_is_shorter_for_a_store_that_answers_slowly(postgresql_url: str, ground: Ground) -> None:
    far = DelayedDelivery(ENDPOINT, FarStore(postgresql_url))
    with closing(far), running(far, ground.url), endpoint(postgresql_url, ground.url):
        for _ in range(3):
            before = time.time()
            ground.publish(b"1000", delay=1000)
            (received,) = ground.receive()
            assert received.at - before >= 1


@pytest.mark.long
@pytest.mark.parametrize("database", ["mariadb", "sqlite"])
def test_an_ingress_killed_once_on_other_databases(
    ground: Ground, database: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    with endpoint(url) as delivery:
        delivery.prepare()
        with IngressProcess(url, ground.url, batch_size=100) as victim:
            for number in range(500):
                ground.publish(b"%d" % number, delay=LONG, message_id=f"message-{number}")
            wait_until(lambda: delivery.count() > 0, "it is at work")
            victim.kill()
        with running(delivery, ground.url):
            wait_until(lambda: ground.depth(QUEUE) == 0 and delivery.count() == 500, "all are stored")
