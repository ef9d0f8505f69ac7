"""Migrating as simple tools do: read a row, publish it, wait for its confirm, mark it as moved, commit.

Rows are streamed by one query, and marked by their key: no tool of this kind can do less.
"""

from datetime import UTC, datetime
from typing import Final

import pika
import psycopg
from psycopg import sql

from delaystore.transports.rabbitmq.topology import CascadeTopology

PAGE: Final = 1000
"""Rows that the stream fetches at a time."""


def migrate_row_by_row(dsn: str, table: str, url: str, topology: CascadeTopology) -> int:
    """Move all rows; how many it were. Adds the column `moved` to the table."""
    name = sql.Identifier(table)
    mark = sql.SQL("UPDATE {} SET moved = true WHERE message_id = %s").format(name)
    stream = sql.SQL("SELECT message_id, destination, due_time, body FROM {} ORDER BY due_time").format(name)
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    moved = 0
    with psycopg.connect(dsn, autocommit=True) as marking, psycopg.connect(dsn) as reading:
        marking.execute(sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS moved boolean").format(name))
        with reading.cursor("rows", withhold=False) as rows:
            rows.itersize = PAGE
            for message_id, destination, due_time, body in rows.execute(stream):
                exchange, key = topology.route(due_time - datetime.now(UTC), destination)
                properties = pika.BasicProperties(message_id=message_id, delivery_mode=2)
                channel.basic_publish(exchange, key, bytes(body), properties, mandatory=True)
                marking.execute(mark, (message_id,))
                moved += 1
    connection.close()
    return moved
