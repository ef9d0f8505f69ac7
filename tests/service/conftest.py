"""What the tests of the service have in common."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dispatching import wait_until
from tests.integration.sql_stores import message
from tests.servers import PostgreSQL, RabbitMQ
from tests.service.busy import PATIENT, Busy, claimed, declare, sending
from tests.service.serving import endpoint, serving, write


@pytest.fixture
def busy(private_postgresql: PostgreSQL, private_rabbitmq: RabbitMQ, tmp_path: Path) -> Iterator[Busy]:
    """A service that waits for the answer of a broker that is paused to 50 messages."""
    store, broker = private_postgresql.create_database(), private_rabbitmq.create_vhost()
    declare(broker, "billing")
    config = write(tmp_path / "delaystore.toml", endpoint("sales", store, broker), PATIENT)
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        with sending("sales", store) as delivery:
            private_rabbitmq.pause()
            now = delivery.operations.now()
            delivery.send_many(message(now) for _ in range(50))
        wait_until(lambda: claimed(store), "a claim")
        time.sleep(1)
        yield Busy(service, store, broker, config)
