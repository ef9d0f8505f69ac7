"""A pika consumer that tries again later: each message that fails comes back after a longer delay, four times at most.

Run it with `python examples/delayed_retry.py amqp://localhost`. RabbitMQ itself keeps what waits, in the queues of a
cascade; the consumer holds nothing, and may end at any time. In place of a cascade of your own, which this example
creates (`delaystore cascade create --cascade custom:example:10:ms` would, too), leave `topology` out to use the one
that NServiceBus endpoints share, up to 8 years in seconds.
"""

import sys
from typing import Any

import pika

from delaystore.cascades import BrokerClient
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.retry import RetryResult, original, retry_later, settle_expired
from delaystore.transports.rabbitmq.topology import topology_named

CASCADE = topology_named("custom:example:10:ms")
QUEUE, ERROR_QUEUE = "example.shipping", "example.error"


class Consumer:
    """Ships orders: the first does not succeed at once, the second never."""

    def __init__(self, channel: Any) -> None:
        self._done = 0
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume(QUEUE, self._handle)  # without auto_ack: what is not acknowledged is not lost

    def _handle(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if settle_expired(channel, method, properties):
            return
        message = original(method, properties, topology=CASCADE)
        try:
            ship(body.decode(), message.routing_key, message.attempt)
            channel.basic_ack(method.delivery_tag)
            self._done += 1
        except OSError as error:
            result = retry_later(
                channel,
                method,
                properties,
                body,
                delay=0.1 * 2**message.attempt,
                queue=QUEUE,
                topology=CASCADE,
                limit=3,
                error_queue=ERROR_QUEUE,
                error=error,
            )
            print(f"{body.decode()}: {error}: {result.value}")
            self._done += result is RetryResult.FAILED
        if self._done == 2:
            channel.stop_consuming()


def ship(order: str, routing_key: str, attempt: int) -> None:
    """Do the work, or raise."""
    if order == "order 2":
        raise ConnectionError("no such address")
    if attempt < 2:
        raise ConnectionError("the warehouse is closed")
    print(f"{order}: shipped at attempt {attempt + 1}, as sent with {routing_key}")


def prepare(channel: Any) -> None:
    """Queues, an exchange, and two orders."""
    for queue in (QUEUE, ERROR_QUEUE):
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_purge(queue)
    channel.exchange_declare("example.orders", "topic", durable=True)
    channel.queue_bind(QUEUE, "example.orders", "orders.#")
    for order in ("order 1", "order 2"):
        channel.basic_publish("example.orders", "orders.paid", order.encode())


def main(url: str) -> None:
    """Consume until both orders are settled."""
    with BrokerClient(url) as broker:
        declare(broker.connections, CASCADE.layout().parts)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        prepare(channel)
        Consumer(channel)
        channel.start_consuming()
        _, failed, _ = channel.basic_get(ERROR_QUEUE, auto_ack=True)
        print("error queue:", failed.headers["NServiceBus.ExceptionInfo.Message"])


if __name__ == "__main__":
    main(sys.argv[1])
