"""A large store of the former release is upgraded while its programs are at work: with a million that wait in soak."""

import os
import subprocess
from collections import Counter
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from delaystore.dispatcher import Dispatcher
from delaystore.filters import MessageFilter
from delaystore.message import FailedAttempt
from delaystore.stores.records import FailedDelivery
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import Transport
from tests.faults.arrivals import assert_arrived, declare, drain
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, message, messages, open_store
from tests.faults.former_release import RELEASES, SENDER, FormerRelease
from tests.faults.patience import wait_until
from tests.faults.scale import scaled

WAITING, BODY = scaled((150_000, 1800), (1_000_000, 200))
"""How many messages wait, and the bytes of each: together a table that is large enough for partitions."""
MANY = 30_000
FILL = """
INSERT INTO faults_delayed (message_id, destination, due_time, next_attempt, failure_count, body)
SELECT gen_random_uuid()::text, 'billing', due, due, 0, decode(repeat('78', :body), 'hex')
FROM (SELECT now() + interval '30 days' + random() * interval '365 days' AS due FROM generate_series(1, :count)) AS s
"""


@pytest.fixture(params=RELEASES)
def former(request: pytest.FixtureRequest, postgresql_url: str, rabbitmq_url: str, tmp_path: Path) -> FormerRelease:
    environment = {
        **os.environ,
        "DELAYSTORE_STORE": postgresql_url,
        "DELAYSTORE_TRANSPORT": rabbitmq_url,
        "DELAYSTORE_ENDPOINT": ENDPOINT,
    }
    former = FormerRelease(request.param, tmp_path, environment)
    assert former.run("setup", "--queue", DESTINATION).returncode == 0
    return former


@pytest.mark.long
def test_an_upgrade_while_the_former_release_is_at_work(
    former: FormerRelease, postgresql_url: str, rabbitmq_transport: Transport
) -> None:
    """Its dispatcher sends what waits in a partition, too, and what has a key."""
    engine = create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(FILL), {"count": WAITING, "body": BODY})
        connection.execute(text("VACUUM ANALYZE faults_delayed"))  # a first autovacuum would keep a partition away
    engine.dispose()
    with (
        former.running("-m", "delaystore.cli", "dispatch") as dispatcher,
        former.running("-c", SENDER, postgresql_url, ENDPOINT) as sender,
    ):
        sent = sent_by(sender, 20)
        arrived = first_arrivals(rabbitmq_transport)
        store = open_store(postgresql_url)
        sent += in_bulk(store) + sent_by(sender, 100)
        store.store(single := message(due_in=1))
        store.store(keyed := message(due_in=1, key="k"))
        sender.kill()
        sent += [single.message_id, keyed.message_id, *sent_by(sender)]
        wait_until(lambda: store.count() == WAITING, "everything due was dispatched")
        assert dispatcher.poll() is None
    assert store.message_id_of("k") is None
    arrived += drain(rabbitmq_transport, DESTINATION)
    unprinted = set(arrived) - set(sent)
    assert len(unprinted) <= 1, "the sender may have been killed between a send and its line"
    assert_arrived(arrived, [*sent, *unprinted])

    store.store_many(after := messages(10))
    assert Dispatcher(store, rabbitmq_transport, endpoint=ENDPOINT).dispatch_due().delivered == 10
    assert_arrived(drain(rabbitmq_transport, DESTINATION), ids(after))
    store.close()


@pytest.mark.long
def test_the_former_release_beside_this_one(
    former: FormerRelease, postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport
) -> None:
    """Its dispatcher fetches nothing that is parked, and what it counts as failed is found here."""
    declare(rabbitmq_url, "other")
    declare(rabbitmq_url, "full", **{"max-length": 0, "overflow": "reject-publish"})
    with former.running("-m", "delaystore.cli", "dispatch") as dispatcher:
        with former.running("-c", SENDER, postgresql_url, ENDPOINT) as sender:
            sent = sent_by(sender, 5)
            arrived = first_arrivals(rabbitmq_transport)
            sender.kill()
            sent += sent_by(sender)
        store = open_store(postgresql_url)
        wait_until(lambda: store.count() == 0, "the former release has sent what it stored")
        store.pause(DESTINATION, by="test")
        store.store_many(paused := messages(20, due_in=1))
        assert store.park(store.now() + timedelta(seconds=10)) == 20
        store.store_many([refused := message("full"), message("other", due_in=2)])
        wait_until(lambda: store.count_failing(10) == 1, "the former release has counted a failure")
        wait_until(lambda: store.count(destination="other") == 0, "what was due after the parked ones has gone")
        assert store.count_parked(100) == 20
        assert [each.message_id for each in store.search(MessageFilter(failing=True)).messages] == [refused.message_id]
        arrived += drain(rabbitmq_transport, DESTINATION)
        assert set(sent) <= set(arrived)
        assert store.resume(DESTINATION, by="test")
        while store.unpark():
            pass
        wait_until(lambda: store.count(destination=DESTINATION) == 0, "what was resumed has been dispatched")
        assert dispatcher.poll() is None
    assert store.destinations() == []
    assert_arrived(drain(rabbitmq_transport, DESTINATION), ids(paused))
    with store.transaction() as block:
        (again,) = block.fetch_due(store.now() + timedelta(hours=1), 10)
        failure = FailedAttempt(store.now(), "Refused", "it is full")
        block.count_failures([FailedDelivery(message=again, next_attempt=store.now(), attempt=failure)])
    shown = store.get(refused.message_id)
    assert shown is not None
    assert shown.failures == (failure,)
    assert shown.failure_count > 1
    store.close()


@pytest.mark.long_runs(after=1)
def test_the_former_release_refuses_to_start_with_newer_tables(former: FormerRelease, postgresql_url: str) -> None:
    open_store(postgresql_url).close()
    refused = former.run("setup")
    assert refused.returncode != 0
    assert "upgrade delaystore" in refused.stderr


def first_arrivals(transport: Transport) -> Counter[str]:
    """What has arrived once the dispatcher is at work: it would not start with newer tables."""
    arrived: Counter[str] = Counter()
    wait_until(lambda: arrived.update(drain(transport, DESTINATION)) or arrived, "the dispatcher is at work")
    return arrived


def sent_by(sender: subprocess.Popen[str], count: int | None = None) -> list[str]:
    """The next `count` message_ids that it has sent; None: all that are left."""
    assert sender.stdout is not None
    lines = list(islice(sender.stdout, count))
    return [line.strip() for line in lines if line.endswith("\n")]


def in_bulk(store: SqlDelayedMessageStore) -> list[str]:
    """Messages that wait in a partition, by the limits that everybody has."""
    partitioned = messages(MANY, due_in=1)
    assert store.store_many(partitioned) == MANY
    with store.engine.connect() as connection:
        found = text("SELECT count(*) FROM pg_inherits WHERE inhparent = CAST('faults_delayed' AS REGCLASS)")
        assert connection.execute(found).scalar() == 1
    return ids(partitioned)
