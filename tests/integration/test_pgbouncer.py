"""Behind a pooler that shares sessions: no wake-ups and no prepared statements, and everything arrives all the same."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from delaystore import DelayedDelivery, DelayedDeliverySettings
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports import InMemoryTransport
from tests.integration.test_sql_store import eventually
from tests.servers import PgBouncer, PostgreSQLDatabases


@pytest.fixture(params=["ISO, MDY", "German, DMY"])
def store(
    postgresql: PostgreSQLDatabases, start_server: Any, request: pytest.FixtureRequest
) -> Iterator[SqlDelayedMessageStore]:
    """In databases that write times in one way or another."""
    pooler: PgBouncer = start_server(lambda: PgBouncer(postgresql.url))
    url = postgresql.create_database(settings={"datestyle": request.param})
    yield SqlDelayedMessageStore(pooler.url_of(url) + "?prepare_threshold=none")
    postgresql.drop_database(url)


def test_messages_are_found_by_polling(store: SqlDelayedMessageStore) -> None:
    transport = InMemoryTransport()
    transport.declare("billing")
    settings = DelayedDeliverySettings(poll_interval=timedelta(seconds=0.1))
    with DelayedDelivery("sales", store, transport, settings) as delivery:
        for _ in range(50):
            delivery.send("billing", b"pay", delay=0.2)
        kept = delivery.send("billing", b"pay", delay=3600)
        received: list[object] = []

        def all_received() -> bool:
            with transport.receive("billing", limit=50) as messages:
                received.extend(messages)
            return len(received) == 50

        eventually(all_received)
        assert delivery.health().subscription_alive is False
        assert delivery.cancel(kept) is ManagementOutcome.DONE
