"""Several dispatchers share one store."""

import pytest

from delaystore.transports import SqlQueueTransport, Transport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ids, messages, open_store
from tests.faults.patience import wait_until
from tests.faults.process import dispatchers
from tests.faults.scale import scaled

DISPATCHERS = 3


def test_three_dispatchers_forward_each_message_once(
    postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport
) -> None:
    store = open_store(postgresql_url)
    rabbitmq_transport.declare(DESTINATION)
    sent = messages(scaled(5000, 20_000))
    with dispatchers(DISPATCHERS, postgresql_url, rabbitmq_url, linger=0.02, batch_size=100) as processes:
        store.store_many(sent)
        for process in processes:
            process.await_batch()
        wait_until(lambda: store.count() == 0, "the store is empty")
        assert [process.terminate() for process in processes] == [0] * DISPATCHERS
    store.close()
    assert_arrived(drain(rabbitmq_transport, DESTINATION), ids(sent), duplicates=0)


@pytest.mark.long
@pytest.mark.parametrize("database", ["mariadb", "sqlite"])
def test_three_dispatchers_on_other_databases_forward_each_message_once(
    database: str, request: pytest.FixtureRequest
) -> None:
    database_url = request.getfixturevalue(f"{database}_url")
    store, transport = open_store(database_url), SqlQueueTransport(database_url)
    transport.declare(DESTINATION)
    sent = messages(scaled(1000, 20_000))
    with dispatchers(DISPATCHERS, database_url, database_url, linger=0.02, batch_size=100) as processes:
        for start in range(0, len(sent), 100):
            store.store_many(sent[start : start + 100])
        wait_until(lambda: store.count() == 0, "the store is empty")
        assert [process.terminate() for process in processes] == [0] * DISPATCHERS
    assert_arrived(drain(transport, DESTINATION), ids(sent), duplicates=0)
    store.close()
    transport.close()
