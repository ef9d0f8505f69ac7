"""Servers of the tests have a wrong clock, a full disk or an alarm when they are told to."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import psycopg
import pytest
from pika.exceptions import ConnectionBlockedTimeout
from sqlalchemy import make_url

from tests.servers import PostgreSQL, RabbitMQ, ServerMissingError, ShiftedClock, SmallDisk
from tests.servers.postgresql import connect

Start = Callable[[Callable[[], Any]], Any]


def test_a_server_goes_by_a_clock_that_can_be_set_while_it_runs(start_server: Start) -> None:
    server: PostgreSQL = start_server(lambda: PostgreSQL(clock=ShiftedClock()))
    assert server.clock is not None
    with connect(make_url(server.url)) as connection:

        def ahead() -> timedelta:
            row = connection.execute("SELECT clock_timestamp()").fetchone()
            assert row is not None
            found: timedelta = row[0] - datetime.now(UTC)
            return found

        assert abs(ahead()) < timedelta(seconds=60)
        server.clock.set(3600)
        assert abs(ahead() - timedelta(seconds=3600)) < timedelta(seconds=60)
        server.clock.set(-3600)
        assert abs(ahead() - timedelta(seconds=-3600)) < timedelta(seconds=60)


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(megabytes=120))
        except ServerMissingError as error:
            pytest.skip(str(error))
        yield disk


def test_a_server_on_a_full_disk_writes_no_more_until_there_is_room(small_disk: SmallDisk, start_server: Start) -> None:
    server: PostgreSQL = start_server(lambda: PostgreSQL({"min_wal_size": "32MB"}, place=small_disk.path))
    url = make_url(server.create_database())
    with connect(url) as connection:
        connection.execute("CREATE TABLE filler (content text)")
        small_disk.fill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO filler SELECT repeat(md5(n::text), 200) FROM generate_series(1, 20000) n")
    small_disk.free()
    server.start()
    with connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM filler").fetchone() == (0,)


@pytest.mark.long_runs("memory")
@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_a_broker_with_an_alarm_reads_from_no_publisher(private_rabbitmq: RabbitMQ, resource: Any) -> None:
    parameters = pika.URLParameters(private_rabbitmq.url)
    parameters.blocked_connection_timeout = 1
    private_rabbitmq.alarm(resource)
    try:
        with pytest.raises(ConnectionBlockedTimeout), pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "nowhere", b"body")
    finally:
        private_rabbitmq.clear_alarms()
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "nowhere", b"body")
