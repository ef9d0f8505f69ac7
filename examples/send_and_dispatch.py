"""Schedule a message, let the embedded dispatcher forward it, and receive it: exactly once, in one SQLite file.

Run it with `python examples/send_and_dispatch.py`. With servers, only the two URLs differ: a store such as
`postgresql+psycopg://localhost/app`, a transport such as `RabbitMQTransport("amqp://localhost")`.
"""

import tempfile
from datetime import timedelta
from pathlib import Path

from delaystore import DelayedDelivery, DelayedDeliverySettings, SqlDelayedMessageStore, TransactionMode
from delaystore.transports import SqlQueueTransport


def main() -> None:
    """Send three messages, cancel one, and wait for the others."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{Path(directory) / 'app.db'}"
        queues = SqlQueueTransport(url)
        queues.declare("billing")
        delivery = DelayedDelivery(
            endpoint="sales",
            store=SqlDelayedMessageStore(url),
            transport=queues,
            settings=DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE),
        )
        with delivery:
            delivery.send("billing", b"second", delay=timedelta(seconds=0.6), headers={"kind": "reminder"})
            delivery.send("billing", b"first", delay=0.3)
            unwanted = delivery.send("billing", b"unwanted", delay=timedelta(days=3))
            print("cancelled:", delivery.cancel(unwanted).value)
            for _ in range(2):
                with queues.receive("billing", timeout=30) as (message,):
                    print("received:", message.body.decode(), dict(message.headers))
            print("still waiting:", delivery.count())


if __name__ == "__main__":
    main()
