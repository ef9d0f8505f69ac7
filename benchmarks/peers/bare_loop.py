"""The bare loop: as fast as plain psycopg and plain pika go, with none of what a product needs.

A batch of 1,000 by SKIP LOCKED, publishes pipelined with confirms, one delete by ids, commit.
"""

import os
import time
from typing import Final

import psycopg
from psycopg import sql

from benchmarks.peers.pipelined import PipelinedPublisher
from benchmarks.peers.termination import stop_requests

BATCH: Final = 1000
NAP: Final = 0.005
"""Seconds it sleeps when nothing is due."""


def main() -> None:
    stopped = stop_requests()
    table = sql.Identifier(os.environ["BENCHMARK_TABLE"])
    due = sql.SQL(
        "SELECT message_id, destination, body FROM {} WHERE next_attempt <= now() "
        "ORDER BY next_attempt LIMIT {} FOR UPDATE SKIP LOCKED"
    ).format(table, BATCH)
    delete = sql.SQL("DELETE FROM {} WHERE message_id = ANY(%s)").format(table)
    publisher = PipelinedPublisher(os.environ["DELAYSTORE_TRANSPORT"])
    with psycopg.connect(os.environ["BENCHMARK_DSN"]) as connection:
        cursor = connection.cursor(binary=True)
        while not stopped.is_set():
            rows = cursor.execute(due, prepare=True).fetchall()
            if rows:
                publisher.publish(rows)
                cursor.execute(delete, ([row[0] for row in rows],), prepare=True)
            connection.commit()
            if not rows:
                time.sleep(NAP)


if __name__ == "__main__":
    main()
