"""A control queue in a process of its own, made to be killed: `control_process STORE BROKER LINGER`.

It says `answered` each time that answers are confirmed and their requests are not acknowledged yet, and lingers there.
"""

import logging
import sys
import time
from collections.abc import Iterable
from contextlib import closing

from delaystore.delivery import DelayedDelivery
from delaystore.ingress.control import ControlQueue
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import RabbitMQTransport
from delaystore.transports.rabbitmq.consuming import Consumer
from tests.integration.asking import ENDPOINT


def main(store: str, broker: str, linger: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    acknowledge = Consumer.acknowledge

    def lingering(consumer: Consumer, tags: Iterable[int]) -> None:
        tags = list(tags)
        if tags:
            sys.stdout.write("answered\n")
            sys.stdout.flush()
            time.sleep(float(linger))
        acknowledge(consumer, tags)

    Consumer.acknowledge = lingering  # type: ignore[method-assign]
    with (
        DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(store)) as delivery,
        closing(RabbitMQTransport(broker)) as transport,
    ):
        ControlQueue(delivery.operations, transport).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
