"""The MSMQ transport's algorithm: fetch one, publish it, wait for its confirm, delete it, commit."""

import os
import time
from typing import Final

import pika
import psycopg
from psycopg import sql

from benchmarks.peers.termination import stop_requests

NAP: Final = 0.005
"""Seconds it sleeps when nothing is due."""


def main() -> None:
    stopped = stop_requests()
    table = sql.Identifier(os.environ["BENCHMARK_TABLE"])
    due = sql.SQL(
        "SELECT message_id, destination, body FROM {} WHERE next_attempt <= now() "
        "ORDER BY next_attempt LIMIT 1 FOR UPDATE SKIP LOCKED"
    ).format(table)
    delete = sql.SQL("DELETE FROM {} WHERE message_id = %s").format(table)
    parameters = pika.URLParameters(os.environ["DELAYSTORE_TRANSPORT"])
    parameters.heartbeat = 0
    channel = pika.BlockingConnection(parameters).channel()
    channel.confirm_delivery()
    with psycopg.connect(os.environ["BENCHMARK_DSN"]) as connection:
        cursor = connection.cursor(binary=True)
        while not stopped.is_set():
            row = cursor.execute(due, prepare=True).fetchone()
            if row is not None:
                message_id, queue, body = row
                properties = pika.BasicProperties(message_id=message_id, delivery_mode=2)
                channel.basic_publish("", queue, body, properties, mandatory=True)
                cursor.execute(delete, (message_id,), prepare=True)
            connection.commit()
            if row is None:
                time.sleep(NAP)


if __name__ == "__main__":
    main()
