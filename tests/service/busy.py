"""A service that waits for the answer of a broker that is paused."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.transports import open_transport
from tests.service.serving import Serving

PATIENT = '[endpoint.sales.dispatcher]\ndispatch_timeout = "1m"'


@dataclass(frozen=True)
class Busy:
    service: Serving
    store: str
    broker: str
    config: Path


@contextmanager
def sending(name: str, store: str) -> Iterator[DelayedDelivery]:
    with closing(DelayedDelivery(name, SqlDelayedMessageStore(store))) as delivery:
        yield delivery


def declare(broker: str, *queues: str) -> None:
    with closing(open_transport(broker)) as transport:
        for queue in queues:
            transport.declare(queue)


def depth(broker: str, queue: str) -> int | None:
    with closing(open_transport(broker)) as transport:
        return transport.depth(queue)


def claimed(store: str) -> int:
    """How many messages a dispatcher has: on PostgreSQL their rows are locked."""
    every, free = "SELECT count(*) FROM sales_delayed", "SELECT 1 FROM sales_delayed FOR UPDATE SKIP LOCKED"
    with psycopg.connect(store.replace("+psycopg", "")) as connection:
        total = connection.execute(every).fetchone()
        assert total is not None
        return int(total[0]) - len(connection.execute(free).fetchall())
