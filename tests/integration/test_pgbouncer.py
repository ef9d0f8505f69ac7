"""Behind a pooler that shares sessions: no wake-ups and no prepared statements, and everything arrives all the same."""

from datetime import timedelta
from typing import Any

import pytest

from delaystore import DelayedDelivery, DelayedDeliverySettings
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports import InMemoryTransport
from tests.integration.test_sql_store import eventually
from tests.servers import PgBouncer, PostgreSQLDatabases


@pytest.fixture
def store(postgresql: PostgreSQLDatabases, postgresql_url: str, start_server: Any) -> SqlDelayedMessageStore:
    pooler: PgBouncer = start_server(lambda: PgBouncer(postgresql.url))
    return SqlDelayedMessageStore(pooler.url_of(postgresql_url) + "?prepare_threshold=none")


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
