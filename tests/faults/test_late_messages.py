"""Messages that turn up before the position up to which a dispatcher has searched."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import create_engine, text

from delaystore.dispatcher import Dispatcher
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports import SqlQueueTransport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, message, messages, open_store
from tests.faults.patience import PATIENCE, wait_until
from tests.faults.scale import scaled

SETTINGS = DelayedDeliverySettings(max_body_bytes=1024)


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """A transaction elsewhere that keeps PostgreSQL from forgetting what is deleted meanwhile."""
    engine = create_engine(url, isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.execute(text("SELECT count(*) FROM pg_class"))
        yield
    engine.dispose()


@pytest.mark.long
def test_late_messages_are_found_behind_an_old_snapshot(postgresql_url: str) -> None:
    store, elsewhere = open_store(postgresql_url), open_store(postgresql_url)
    transport = SqlQueueTransport(postgresql_url)
    transport.declare(DESTINATION)
    backlog = messages(scaled(20_000, 200_000))
    store.store_many(backlog)
    rescheduled = message(due_in=3600)
    store.store(rescheduled)
    dispatcher = Dispatcher(store, transport, SETTINGS, ENDPOINT)
    sent = [*backlog, rescheduled]
    with old_snapshot(postgresql_url):
        dispatcher.start()
        for hours in range(1, 6):
            wait_until(lambda: dispatcher.health().delivered > hours * 1000, "the backlog is forwarded")  # noqa: B023 - called at once
            late = message(due_time=datetime.now(UTC) - timedelta(hours=hours))
            elsewhere.store(late)
            sent.append(late)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        assert elsewhere.reschedule(rescheduled.message_id, yesterday) is ManagementOutcome.DONE
        wait_until(lambda: store.count() == 0, "the late ones are forwarded, too")
        assert dispatcher.stop(PATIENCE)
    assert_arrived(drain(transport, DESTINATION), ids(sent))
    for each in (store, elsewhere, transport):
        each.close()
