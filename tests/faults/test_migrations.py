"""Migrations into NServiceBus' cascade while the system runs, and processes and servers are killed."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from delaystore.delivery import DelayedDelivery
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import RunCounts
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import open_transport
from tests.faults.arrivals import assert_arrived
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, message, open_store
from tests.faults.consumer import Consumer
from tests.faults.migration import Ended, Migration, ended
from tests.faults.patience import wait_until
from tests.faults.scale import scaled
from tests.integration.migrating import dump
from tests.servers import PostgreSQL, RabbitMQ
from tests.servers.server import Server

TABLE = f"{ENDPOINT}_delayed"
KILLS = scaled(3, 20)
OUTAGES = scaled(1, 5)
HOUR = 3600.0


def backlog(count: int, soonest: float, span: float) -> list[DelayedMessage]:
    """So many messages, due from `soonest` seconds from now, spread over `span`, in no order."""
    return [message(due_in=soonest + random.uniform(0, span)) for _ in range(count)]


def stored(url: str, messages: list[DelayedMessage]) -> list[str]:
    """Store them; their message_ids."""
    store = open_store(url)
    store.store_many(messages)
    store.close()
    return ids(messages)


def assert_never_early(consumer: Consumer, sent: list[DelayedMessage]) -> None:
    due = {each.message_id: each.due_time.timestamp() for each in sent}
    early = [one for one in consumer.arrived if one.at < due[one.message_id]]
    latest = max(one.at - due[one.message_id] for one in consumer.arrived)
    print(f"early {len(early)}, the latest by {latest:.1f} s")  # noqa: T201 - for a campaign's log
    assert not early, f"{len(early)} of {len(sent)} messages arrived early"


@pytest.mark.long
def test_while_a_dispatcher_runs_and_messages_are_sent_each_arrives_once_and_none_early(
    postgresql_url: str, rabbitmq_url: str
) -> None:
    migration = Migration(postgresql_url, rabbitmq_url)
    migration.set_up()
    delivery = DelayedDelivery(
        ENDPOINT,
        SqlDelayedMessageStore(postgresql_url),
        open_transport(rabbitmq_url),
        DelayedDeliverySettings(max_body_bytes=1024),
    )
    delivery.setup_infrastructure()
    sent = backlog(scaled(10_000, 50_000), soonest=2, span=scaled(5, 60))
    with delivery, Consumer(rabbitmq_url, DESTINATION) as consumer:
        delivery.send_many(sent)
        with migration.running() as process:
            while process.poll() is None:
                sent.append(message(due_in=random.uniform(0, 10)))
                delivery.send_many(sent[-1:])
                time.sleep(0.002)
            report = ended(process).document
        consumer.await_quiet(len(sent))
    moved = report["counts"]["moved"]
    assert 0 < moved < len(sent), "both the migration and the dispatcher took part"
    print(f"{moved} of {len(sent)} moved, the others were dispatched")  # noqa: T201 - for a campaign's log
    assert_arrived(consumer.times, ids(sent), duplicates=0)
    assert_never_early(consumer, sent)
    assert migration.verified() == RunCounts(prepared=moved, moved=moved)


def kill_at_random(migration: Migration, number: int) -> set[str]:
    """Start a run and SIGKILL it; what it had in flight. The second of each four is killed while it starts."""
    with migration.running() as process:
        if number % 4 == 1:
            time.sleep(random.uniform(0, 1.5))
        else:
            migration.await_moved(process, migration.moved() + random.randint(1, 300))
            time.sleep(random.uniform(0, 0.1))
        process.kill()
        process.wait()
    migration.await_lock()
    return migration.in_flight()


@pytest.mark.long
def test_a_run_killed_again_and_again_loses_nothing_and_repeats_only_what_was_in_flight(
    postgresql_url: str, rabbitmq_url: str
) -> None:
    migration = Migration(postgresql_url, rabbitmq_url, "--batch-size", "50", "--max-rate", "2000")
    migration.set_up()
    sent = backlog(KILLS * 600, soonest=0, span=5)
    stored(postgresql_url, sent)
    with Consumer(rabbitmq_url, DESTINATION) as consumer:
        at_risk = Counter[str]()
        for number in range(KILLS):
            in_flight = kill_at_random(migration, number)
            assert len(in_flight) <= 150, "three batches"
            at_risk.update(in_flight)
        assert 0 < migration.moved() < len(sent)
        assert migration.but("--max-rate", "100000").run().document["resumed"]
        consumer.await_quiet(len(sent))
    repeated = consumer.times - Counter(set(consumer.times))
    assert_arrived(consumer.times, ids(sent), duplicates=at_risk.total())
    assert repeated <= at_risk, "only what was in flight at a kill arrives once more"
    assert_never_early(consumer, sent)
    assert migration.verified() == RunCounts(prepared=len(sent), moved=len(sent))


@pytest.fixture
def killable(private_postgresql: PostgreSQL, private_rabbitmq: RabbitMQ) -> Migration:
    """A migration between two servers that may be killed, of batches of 200."""
    options = ("--batch-size", "200", "--max-rate", "1000", "--target-timeout", "90s")
    migration = Migration(private_postgresql.create_database(), private_rabbitmq.create_vhost(), *options)
    migration.set_up()
    private_rabbitmq.sync_queues()
    return migration


def restart(server: Server) -> None:
    server.kill()
    server.start()


def migrate_through(migration: Migration, fault: Callable[[], None]) -> tuple[Ended, Ended]:
    """Run, with `fault` in the middle, and then to the end; how both ended.

    Everything must be in the cascade then, and only what was sent again may be there twice.
    """
    sent = stored(migration.store, backlog(3000, soonest=HOUR, span=60))
    with migration.running() as process:
        migration.await_moved(process, migration.moved() + 1000)
        fault()
        first = ended(process)
    last = migration.but("--max-rate", "100000").run()
    again = sum(run.document.get("sent_again", 0) for run in (first, last) if run.code == 0)
    assert_arrived(migration.waiting(), sent, duplicates=again)
    assert migration.verified() == RunCounts(prepared=len(sent), moved=len(sent))
    return first, last


@pytest.mark.long
def test_postgresql_killed_and_restarted_stops_the_run_which_goes_on_when_run_again(
    killable: Migration, private_postgresql: PostgreSQL
) -> None:
    for _ in range(OUTAGES):
        first, last = migrate_through(killable, lambda: restart(private_postgresql))
        assert first.code == 2
        (line,) = first.err.splitlines()
        assert line.startswith("error: stopped: ")
        assert "nothing is lost: run it again to go on" in line
        assert last.document["resumed"]


@pytest.mark.long
def test_rabbitmq_killed_and_restarted_is_waited_for(killable: Migration, private_rabbitmq: RabbitMQ) -> None:
    for _ in range(OUTAGES):
        first, _ = migrate_through(killable, lambda: restart(private_rabbitmq))
        assert first.code == 0


@pytest.mark.soak
def test_rabbitmq_gone_for_longer_than_the_target_timeout_stops_the_run_which_goes_on_when_run_again(
    killable: Migration, private_rabbitmq: RabbitMQ
) -> None:
    impatient = killable.but("--target-timeout", "1s")
    sent = stored(impatient.store, backlog(3000, soonest=HOUR, span=60))
    with impatient.running() as process:
        impatient.await_moved(process, 1000)
        private_rabbitmq.kill()
        stopped = ended(process)
    assert stopped.code == 2
    assert "run it again" in stopped.err
    in_flight = impatient.in_flight()
    private_rabbitmq.start()
    assert impatient.but("--max-rate", "100000").run().document["resumed"]
    assert_arrived(impatient.waiting(), sent, duplicates=len(in_flight))
    assert impatient.verified() == RunCounts(prepared=len(sent), moved=len(sent))


def awkward(number: int) -> DelayedMessage:
    """What is easily changed on the way."""
    headers = {"größe": "groß", "raw": b"\x00\xff", "none": None, "nested": {"list": [1, None, "x"]}}
    properties = {"priority": number % 5, "correlation_id": f"ß{number}"}
    more = headers if number % 2 else {}
    body = bytes([number % 256]) * (number % 300)
    return message(due_in=HOUR + number, body=body, headers=more, properties=properties if number % 3 else {})


@pytest.mark.long
def test_aborted_in_the_middle_what_had_not_moved_is_back_bit_for_bit(postgresql_url: str, rabbitmq_url: str) -> None:
    migration = Migration(postgresql_url, rabbitmq_url, "--batch-size", "100", "--max-rate", "1000")
    migration.set_up()
    sent = stored(postgresql_url, [awkward(number) for number in range(3000)])
    before = {row[0]: row for row in dump(postgresql_url, TABLE)}
    assert before.keys() == set(sent)
    with migration.running() as process:
        migration.await_moved(process, 500)
    migration.await_lock()
    in_flight = migration.in_flight()
    moved = migration.moved()
    report = migration.abort()
    assert report.counts.moved == moved
    assert report.extra["in_flight"] == len(in_flight)
    after = {row[0]: row for row in dump(postgresql_url, TABLE)}
    assert len(after) == len(sent) - moved
    assert all(before[message_id] == row for message_id, row in after.items())
    there = migration.waiting()
    assert set(there) | set(after) == set(sent)
    assert set(there) & set(after) <= in_flight
    assert there.total() == len(there), "none twice"
    assert migration.verified() == report.counts


@pytest.mark.long
def test_of_two_runs_at_once_the_second_says_who_is_at_it(postgresql_url: str, rabbitmq_url: str) -> None:
    migration = Migration(postgresql_url, rabbitmq_url, "--batch-size", "5", "--max-rate", "5")  # it takes 100 s
    migration.set_up()
    sent = stored(postgresql_url, backlog(500, soonest=HOUR, span=60))
    with migration.running() as first:
        migration.await_moved(first, 5)
        second = migration.run()
        assert second.code == 2
        (line,) = second.err.splitlines()
        assert line.startswith(f"error: '{TABLE}' is being migrated by process {first.pid} on {os.uname().nodename}")
        first.send_signal(signal.SIGINT)
        assert ended(first).code == 130
    assert migration.but("--max-rate", "100000").run().code == 0
    assert_arrived(migration.waiting(), sent)
    assert migration.verified() == RunCounts(prepared=len(sent), moved=len(sent))


@contextmanager
def locked(migration: Migration) -> Iterator[None]:
    """Somebody has the source's table for themselves, and the run waits for it."""
    engine = create_engine(migration.store)
    with engine.connect() as connection, engine.connect() as other:
        connection.execute(text(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE"))
        query = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        wait_until(lambda: bool(other.execute(query).scalar_one()), "the run waits for the lock")
        yield
    engine.dispose()


@contextmanager
def paused(server: Server) -> Iterator[None]:
    """Connections stay open, and nothing answers."""
    server.pause()
    yield
    server.resume()


def interrupt(process: subprocess.Popen[str]) -> None:
    """Send a SIGINT, and wait until the process has it: a second one would be lost beside it."""
    process.send_signal(signal.SIGINT)
    status = Path(f"/proc/{process.pid}/status")
    wait_until(lambda: process.poll() is not None or "\nShdPnd:\t0000000000000000" in status.read_text(), "it has it")


@pytest.mark.long
@pytest.mark.parametrize("blocked", ["locked", "paused"])
def test_a_second_interrupt_ends_a_run_whose_source_does_not_answer(
    killable: Migration, private_postgresql: PostgreSQL, blocked: str
) -> None:
    sent = stored(killable.store, backlog(3000, soonest=HOUR, span=60))
    with killable.running() as process:
        killable.await_moved(process, 600)
        with locked(killable) if blocked == "locked" else paused(private_postgresql):
            interrupt(process)
            interrupt(process)
            stopped = ended(process)
    assert stopped.code == 130
    assert "what was in flight is as after a kill" in stopped.err
    killable.await_lock()
    in_flight = killable.in_flight()
    assert killable.but("--max-rate", "100000").run().document["resumed"]
    assert_arrived(killable.waiting(), sent, duplicates=len(in_flight))
    assert killable.verified() == RunCounts(prepared=len(sent), moved=len(sent))
