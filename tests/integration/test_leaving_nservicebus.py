"""docs/how-to/leaving-nservicebus-timeouts.md, both of its ways, with a table and a queue as NServiceBus makes them."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pika
import pytest
from sqlalchemy import create_engine, text

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.transports.rabbitmq.delay_headers import time_sent_text
from tests.dispatching import wait_until
from tests.integration.ingress_brokers import Broker
from tests.integration.walks import Walk
from tests.servers import RabbitMQVhosts

PAGE: Final = "docs/how-to/leaving-nservicebus-timeouts.md"
NATIVE: Final = "To native delays"
MANAGER: Final = "delaystore as the timeout manager"
TABLE: Final = """
create table "My_Sales_TimeoutData" ("Id" uuid primary key, "Destination" varchar(200), "SagaId" uuid, "State" bytea,
"Time" timestamp, "Headers" text not null, "PersistenceVersion" varchar(23) not null)
"""
INSERT: Final = """
insert into "My_Sales_TimeoutData" values (:id, 'My.Sales', :saga, :state, :time, :headers, '4.0.0')
"""
SAGA: Final = "11111111-2222-3333-4444-555555555555"
YEAR: Final = timedelta(days=365)


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Broker]:
    opened = Broker(rabbitmq_url, rabbitmq.management_url or "")
    with opened.channel() as channel:
        for queue in ("My.Sales", "My.Sales.Timeouts"):
            channel.queue_declare(queue, durable=True)
            channel.exchange_declare(queue, "fanout", durable=True)
            channel.queue_bind(queue, queue)
    yield opened
    opened.close()


@pytest.fixture
def persistence(postgresql_url: str) -> Iterator[Any]:
    """Adds a timeout to the table of the endpoint's persistence."""
    engine = create_engine(postgresql_url)

    def add(body: bytes, due: datetime) -> None:
        row = {"id": uuid4(), "saga": UUID(SAGA), "state": body, "time": due.replace(tzinfo=None)}
        with engine.begin() as connection:
            connection.execute(text(INSERT), {**row, "headers": json.dumps({"NServiceBus.MessageId": str(uuid4())})})

    with engine.begin() as connection:
        connection.execute(text(TABLE))
    yield add
    engine.dispose()


def walk(broker: Broker, store: str, settings: str, folder: Path) -> Walk:
    real = {
        "http://localhost:15672": broker.management_url,
        "postgresql://localhost/app": store,
        "amqp://localhost": broker.url,
    }
    return Walk(PAGE, settings, real, folder)


def test_to_native_delays(broker: Broker, persistence: Any, postgresql_url: str, tmp_path: Path) -> None:
    persistence(b"in a year", datetime.now(UTC) + YEAR)
    page = walk(broker, postgresql_url, NATIVE, tmp_path)
    create, preview, move = page.commands(NATIVE)
    page.run(create)
    assert "My_Sales" in page.run(preview)
    page.run(move)


@pytest.mark.long
def test_delaystore_as_the_timeout_manager(
    broker: Broker, persistence: Any, postgresql_url: str, tmp_path: Path
) -> None:
    persistence(b"in a year", datetime.now(UTC) + YEAR)
    persistence(b"left in the dispatcher's queue", datetime.now(UTC))
    page = walk(broker, postgresql_url, MANAGER, tmp_path)
    far, run, rest = page.commands(MANAGER)
    page.run(far)
    with page.running(run, lambda: wait_until(lambda: broker.consumers("My.Sales.Timeouts") > 0)):
        page.run(rest)
        assert broker.get("My.Sales")[2] == b"left in the dispatcher's queue"
        send_timeout(broker, b"now", datetime.now(UTC))
        assert broker.get("My.Sales")[2] == b"now"
        send_timeout(broker, b"later", datetime.now(UTC) + YEAR)
        with closing(DelayedDelivery("My.Sales", SqlDelayedMessageStore(postgresql_url))) as delivery:
            wait_until(lambda: {one.body for one in delivery.list().messages} == {b"in a year", b"later"})
            clear_timeouts(broker)
            wait_until(lambda: {one.body for one in delivery.list().messages} == {b"in a year"})
        send(broker, b"no timeout", {})
        _, properties, _ = broker.get("My.Sales.Timeouts.rejected")
        assert "no destination" in properties.headers["delaystore.rejected-reason"]


def send_timeout(broker: Broker, body: bytes, due: datetime) -> None:
    headers = {
        "NServiceBus.Timeout.Expire": time_sent_text(due),
        "NServiceBus.Timeout.RouteExpiredTimeoutTo": "My.Sales",
        "NServiceBus.SagaId": SAGA,
        "NServiceBus.MessageId": str(uuid4()),
    }
    send(broker, body, headers)


def clear_timeouts(broker: Broker) -> None:
    send(broker, b"", {"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": SAGA})


def send(broker: Broker, body: bytes, headers: dict[str, str]) -> None:
    with broker.channel() as channel:
        channel.basic_publish("My.Sales.Timeouts", "", body, pika.BasicProperties(headers=headers, delivery_mode=2))
