"""Dramatiq's delayed messages and retries wait in a store; its workers stay as they are.

Run it with `python examples/dramatiq_actors.py amqp://localhost`. The queue `emails` stays. In an application the store
is a server's, such as `postgresql+psycopg://localhost/app`, and workers are started by `dramatiq`.
"""

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from dramatiq import Retry, Worker, actor
from dramatiq.middleware import Retries
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from delaystore import DelayedDelivery, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.integrations.dramatiq import StoringRabbitmqBroker


def main(broker_url: str) -> None:
    """Send a delayed message, one in a transaction, one that is retried, and cancel one."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{Path(directory) / 'app.db'}"
        delivery = DelayedDelivery("emails", SqlDelayedMessageStore(url), RabbitMQTransport(broker_url))
        broker = StoringRabbitmqBroker(delivery, url=broker_url, middleware=[Retries(min_backoff=1500)])
        done: list[str] = []
        all_done = threading.Event()

        def note(line: str) -> None:
            done.append(line)
            if len(done) == 4:
                all_done.set()

        @actor(broker=broker, queue_name="emails")
        def remind(address: str) -> None:
            note(f"reminded {address}")

        @actor(broker=broker, queue_name="emails")
        def confirm(address: str) -> None:
            if f"no answer for {address}" not in done:
                note(f"no answer for {address}")
                raise Retry
            note(f"confirmed {address}")

        with delivery, closing(broker), working(broker):
            remind.send_with_options(args=("ada@example.org",), delay=timedelta(seconds=1.5))
            confirm.send("bob@example.org")
            unwanted = remind.send_with_options(args=("eve@example.org",), delay=timedelta(days=3))
            print("cancelled:", delivery.cancel(unwanted.message_id).value)
            engine = create_engine(url)
            with Session(engine) as session, session.begin(), broker.messages_in(session):
                remind.send("cid@example.org")  # if the transaction is rolled back, nothing is sent
            engine.dispose()
            all_done.wait(60)
        print(*sorted(done), sep="\n")


@contextmanager
def working(broker: StoringRabbitmqBroker) -> Iterator[None]:
    """A worker of this process, for the time of a block."""
    worker = Worker(broker, worker_timeout=100, worker_threads=2)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


if __name__ == "__main__":
    main(sys.argv[1])
