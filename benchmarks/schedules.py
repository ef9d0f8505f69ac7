"""A store with many schedules beside one without, and the lateness of occurrences."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Self
from uuid import uuid4

import pika
from psycopg import sql

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, ENDPOINT, Bench
from benchmarks.lateness import Lateness, summary
from delaystore.delivery import DelayedDelivery
from delaystore.schedules import Schedule
from delaystore.schedules.making import make_due
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.schedules import schedule_rows

WITH: Final = "with schedules"
WITHOUT: Final = "without"
MINUTE: Final = 60
AT_ONCE: Final = 10_000
NOMINAL_TIME: Final = "delaystore.nominal-time"
BODY: Final = b"x" * BODY_BYTES


class Occurrences:
    """Takes occurrences from a queue of its own, in a thread, and notes how late they arrive. A context manager."""

    def __init__(self, url: str) -> None:
        self.queue: Final = f"bench-occurrences-{uuid4()}"
        self._url, self._lateness = url, list[float]()
        self._thread = threading.Thread(target=self._consume, daemon=True)

    def __enter__(self) -> Self:
        parameters = pika.URLParameters(self._url)
        parameters.heartbeat = 0
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.queue_declare(self.queue, durable=True)
        self._channel.basic_consume(self.queue, self._arrived, auto_ack=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.add_callback_threadsafe(self._channel.stop_consuming)
        self._thread.join()
        self._channel.queue_delete(self.queue)
        self._connection.close()

    def taken(self) -> Lateness:
        """The lateness, in milliseconds, of the occurrences that have arrived since the last call."""
        taken, self._lateness = self._lateness, []
        return summary(taken)

    def _consume(self) -> None:
        self._channel.start_consuming()

    def _arrived(self, _channel: Any, _method: Any, properties: Any, _body: bytes) -> None:
        nominal = datetime.fromisoformat(properties.headers[NOMINAL_TIME])
        self._lateness.append((time.time() - nominal.timestamp()) * 1000)


def put_many(bench: Bench, count: int, queue: str, **rule: Any) -> None:
    """Put schedules of a rule; intervals begin evenly over a minute."""
    begin, is_interval = bench.store.now(), "every" in rule
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(bench.store_url)) as delivery:
        for first in range(0, count, AT_ONCE):
            schedules = [
                Schedule.of(
                    f"{first}/{number}",
                    destination=queue,
                    body=BODY,
                    starts=begin + timedelta(seconds=(first + number) % MINUTE) if is_interval else None,
                    **rule,
                )
                for number in range(min(AT_ONCE, count - first))
            ]
            delivery.schedules.put_all(schedules, prefix=f"{first}/")
    bench.settle()


@contextmanager
def with_and_without(arena: Arena, count: int, queue: str, **rule: Any) -> Iterator[Mapping[str, Bench]]:
    """An empty store with `count` schedules of a rule, and one with none, by WITH and WITHOUT."""
    with ExitStack() as stack:
        without, scheduled = (stack.enter_context(arena.bench()) for _ in range(2))
        put_many(scheduled, count, queue, **rule)
        yield {WITHOUT: without, WITH: scheduled}


def begin_again(bench: Bench) -> None:
    """Have schedules of a minute go on from now, as if a dispatcher had run: no dispatcher has run for a while."""
    bench.database.execute(f"TRUNCATE {bench.table}")
    bench.database.execute(
        sql.SQL(
            "UPDATE {} SET look_at = now(), next_due = next_due + interval '1 minute' "
            "* (floor(extract(epoch FROM now() - next_due) / 60) + 1), "
            "progress = jsonb_set(progress::jsonb, '{{ahead}}', '[]')::text WHERE next_due IS NOT NULL"
        ).format(sql.Identifier(f"{bench.table}_schedules"))
    )
    made = 1
    while made:
        with bench.store.transaction() as transaction:
            made = make_due(schedule_rows(transaction)).rows
    bench.database.execute(f"DELETE FROM {bench.table} WHERE due_time <= now() + interval '1 second'")
    bench.database.execute(f"VACUUM (ANALYZE) {bench.table}_schedules")
    bench.settle()
