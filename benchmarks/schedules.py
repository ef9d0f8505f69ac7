"""A store with many schedules beside one without, and the lateness of occurrences."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final, Self
from uuid import uuid4

import pika
from psycopg import sql

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, ENDPOINT, Bench
from benchmarks.consumer import OCCURRENCES
from benchmarks.lateness import Lateness, summary
from benchmarks.programs import ROOT
from delaystore.delivery import DelayedDelivery
from delaystore.schedules import Schedule
from delaystore.schedules.making import make_due
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.schedules import schedule_rows

WITH: Final = "with schedules"
WITHOUT: Final = "without"
MINUTE: Final = 60
AT_ONCE: Final = 10_000
BODY: Final = b"x" * BODY_BYTES


class Occurrences:
    """Takes occurrences from a queue of its own, in another process. A context manager."""

    def __init__(self, url: str) -> None:
        self.queue: Final = f"bench-occurrences-{uuid4()}"
        self._url = url

    def __enter__(self) -> Self:
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{self._url}?heartbeat=0"))
        self._channel = self._connection.channel()
        self._channel.queue_declare(self.queue, durable=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.queue_delete(self.queue)
        self._connection.close()

    @contextmanager
    def taking(self) -> Iterator[Callable[[], Lateness]]:
        """Take occurrences; the function ends this, and returns their lateness in milliseconds."""
        self._channel.queue_purge(self.queue)
        environment = os.environ | {"DELAYSTORE_TRANSPORT": self._url, "BENCHMARK_QUEUE": self.queue}
        command = (sys.executable, "-m", "benchmarks.consumer", OCCURRENCES)
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:

            def taken() -> Lateness:
                process.terminate()
                return summary(json.loads(process.communicate(timeout=60)[0]))

            try:
                yield taken
            finally:
                process.kill()


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
    """Have schedules of a minute go on from now, as if a dispatcher had run: no dispatcher has run for a while.

    Each row makes two occurrences at once, every second minute. The rows do that in either minute, one half in each.
    """
    rows, messages = sql.Identifier(f"{bench.table}_schedules"), sql.Identifier(bench.table)
    execute = bench.database.execute
    execute(f"TRUNCATE {bench.table}")
    execute(
        sql.SQL(
            "UPDATE {} SET look_at = now(), next_due = next_due + interval '1 minute' "
            "* (floor(extract(epoch FROM now() - next_due) / 60) + 1), "
            "progress = jsonb_set(progress::jsonb, '{{ahead}}', '[]')::text WHERE next_due IS NOT NULL"
        ).format(rows)
    )
    made = 1
    while made:
        with bench.store.transaction() as transaction:
            made = make_due(schedule_rows(transaction)).rows
    execute(
        sql.SQL(
            "UPDATE {} SET look_at = look_at - interval '1 minute', next_due = next_due - interval '1 minute', "
            "progress = jsonb_set(progress::jsonb, '{{ahead}}', (progress::jsonb->'ahead') - -1)::text "
            "WHERE hashtext(name) % 2 = 0"
        ).format(rows)
    )
    execute(
        sql.SQL(
            "DELETE FROM {} m USING {} s WHERE m.message_id = 'schedule/' || s.name || "
            "to_char(s.next_due AT TIME ZONE 'UTC', '/YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
        ).format(messages, rows)
    )
    execute(f"DELETE FROM {bench.table} WHERE due_time <= now() + interval '1 second'")
    execute(sql.SQL("VACUUM (ANALYZE) {}").format(rows))
    bench.settle()
