"""A process that takes messages out of a queue: it notes each at once, and acknowledges it after."""

from collections.abc import Callable
from typing import Any

import pika
import sqlalchemy
from pika import exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from sqlalchemy import exc, text

from delaystore.stores.sql.engine import create_store_engine
from tests.chaos.program import Program
from tests.chaos.recording_store import key_of

CONNECT_AGAIN = 0.5  # seconds
POLL = 0.1
PREFETCH = 100
OUTAGES = (exceptions.AMQPError, AMQPConnectorException, exc.SQLAlchemyError, OSError)


def consume_rabbitmq(program: Program) -> None:
    """Until SIGTERM, or the connection is lost."""
    options = program.options
    connection = pika.BlockingConnection([_parameters(url) for url in options.consumer_urls])
    try:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        for method, properties, body in channel.consume(options.queue, inactivity_timeout=POLL):
            if method is not None:
                _note(program, key_of(body), properties.message_id, redelivered=method.redelivered)
                channel.basic_ack(method.delivery_tag)
            if program.ended.is_set():
                return
    finally:
        if connection.is_open:
            connection.close()


def consume_table(program: Program) -> None:
    """Until SIGTERM, or the connection is lost. A row read twice is told from two rows by its `copy`."""
    options = program.options
    table = f"{options.queue}_queue"
    query = text(f"SELECT seq, message_id, enqueued_at, body FROM {table} ORDER BY seq LIMIT {PREFETCH}")
    delete = text(f"DELETE FROM {table} WHERE seq IN :numbers").bindparams(
        sqlalchemy.bindparam("numbers", expanding=True)
    )
    engine = create_store_engine(options.store_url)
    try:
        while not program.ended.wait(POLL):
            with engine.connect() as connection:
                rows = connection.execute(query).all()
            for row in rows:
                _note(program, key_of(bytes(row.body)), row.message_id, copy=f"{row.seq}@{row.enqueued_at}")
            if rows:
                with engine.begin() as connection:
                    connection.execute(delete, {"numbers": [row.seq for row in rows]})
    finally:
        engine.dispose()


def main(program: Program) -> None:
    rabbitmq = program.options.consumer_urls[0].startswith("amqp")
    consume: Callable[[Program], None] = consume_rabbitmq if rabbitmq else consume_table
    while not program.ended.is_set():
        try:
            consume(program)
        except OUTAGES:
            program.ended.wait(CONNECT_AGAIN)


def _note(program: Program, key: str, message_id: str, **details: Any) -> None:
    program.recorder.note("delivered", key=key, id=message_id, queue=program.options.queue, **details)


def _parameters(url: str) -> pika.URLParameters:
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 10
    parameters.socket_timeout = parameters.stack_timeout = 5
    return parameters


if __name__ == "__main__":
    main(Program())
