"""The bare ingress loop: as fast as plain pika and plain psycopg go, with none of what a product needs.

Consumes a prefetch, stores what has come by one COPY into the columns that forwarding needs, commits, and acknowledges
all of it at once. Properties and headers but x-delay are forgotten, nothing is checked, and a message that comes again
ends it.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pika
import psycopg
from psycopg import sql

from benchmarks.peers.termination import stop_requests

PREFETCH: Final = 2500
BATCH: Final = 1000
GATHERING: Final = 0.01
"""Seconds for which a batch waits for more."""
_LOOK_EVERY: Final = 0.1


class BareIngress:
    """A consumer, and a table."""

    def __init__(self, database: psycopg.Connection, table: str, queue: str) -> None:
        self._database = database
        self._copy = sql.SQL("COPY {} (message_id, destination, due_time, body) FROM STDIN (FORMAT BINARY)").format(
            sql.Identifier(table)
        )
        self._queue = queue
        self._rows: list[tuple[str, str, datetime, bytes]] = []
        self._tag = 0
        self._channel: Any = None
        self._stopped = stop_requests()
        parameters = pika.URLParameters(os.environ["DELAYSTORE_TRANSPORT"])
        parameters.heartbeat = 0
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)

    def run(self) -> None:
        """Until SIGTERM."""
        self._look()
        self._connection.ioloop.start()

    def _look(self) -> None:
        if self._stopped.is_set():
            self._connection.ioloop.stop()
        else:
            self._connection.ioloop.call_later(_LOOK_EVERY, self._look)

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._consume)

    def _consume(self, channel: Any) -> None:
        self._channel = channel
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(self._queue, self._arrived)

    def _arrived(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        due_time = datetime.now(UTC) + timedelta(milliseconds=properties.headers["x-delay"])
        if not self._rows:
            self._connection.ioloop.call_later(GATHERING, self._store)
        self._rows.append((properties.message_id, method.routing_key, due_time, body))
        self._tag = method.delivery_tag
        if len(self._rows) >= BATCH:
            self._store()

    def _store(self) -> None:
        if not self._rows:
            return
        with self._database.cursor() as cursor, cursor.copy(self._copy) as copy:
            copy.set_types(("text", "text", "timestamptz", "bytea"))
            for row in self._rows:
                copy.write_row(row)
        self._database.commit()
        self._channel.basic_ack(self._tag, multiple=True)
        self._rows.clear()


def main() -> None:
    queue, table = sys.argv[1:]
    with psycopg.connect(os.environ["BENCHMARK_DSN"]) as database:
        BareIngress(database, table, queue).run()


if __name__ == "__main__":
    main()
