"""Behind a pooler that shares sessions: no wake-ups and no prepared statements, and everything arrives all the same."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from delaystore import DelayedDelivery, DelayedDeliverySettings
from delaystore.errors import StoreError
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports import InMemoryTransport
from tests.integration.sql_stores import message, opened
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


def test_without_the_option_that_it_needs_the_error_names_it(
    postgresql: PostgreSQLDatabases, postgresql_url: str, start_server: Any
) -> None:
    pooler: PgBouncer = start_server(lambda: PgBouncer(postgresql.url))
    url = pooler.url_of(postgresql_url)
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with opened(url) as store:
        for _ in range(10):  # until the driver prepares the statement, in the one session that there is
            store.store(message(store.now(), 3600))
        with psycopg.connect(plain, prepare_threshold=None) as other:
            other.execute("SELECT 1")  # in that session, which its transaction keeps
            with pytest.raises(StoreError, match=r"add \?prepare_threshold=none to the URL, or set"):
                store.store(message(store.now(), 3600))
        assert store.count() == 10
