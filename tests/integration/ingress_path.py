"""An ingress on a real broker, walked by hand: published, taken, read, forwarded."""

import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

from delaystore import DelayedMessage, RabbitMQTransport
from delaystore.cascades import BrokerClient
from delaystore.ingress.reading.destinations import parse_destination
from delaystore.ingress.reading.forms.naming import FORMS
from delaystore.ingress.reading.incoming import IncomingMessage
from delaystore.ingress.reading.reader import IncomingReader, ReadingRules
from delaystore.ingress.topology import IngressNames, IngressTopology, create
from delaystore.text import Address
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.copies import Copy
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.raw import RawProperties
from tests.integration.cascades import channel_to
from tests.integration.cli import PATIENCE

NAMES: Final = IngressNames.of("orders")
ENTRANCE: Final = Address(NAMES.exchange, "key.1")
END: Final = "end"


class IngressPath:
    """An ingress for the exchange `orders`, and the queue `end` behind it."""

    def __init__(self, url: str, management: str) -> None:
        with closing(BrokerClient(url, management)) as client:
            create(client, IngressTopology(names=NAMES, out_type="topic", exchange_type="topic"))
        self.url = url
        self.transport = RabbitMQTransport(url)
        self._publisher = BatchPublisher(broker_from_url(url))
        self._reader = IncomingReader(
            ReadingRules(
                ingress_queue=NAMES.queue,
                destination=parse_destination(f"/exchanges/{NAMES.out}", "--destination"),
                forms=FORMS,
                check=self.transport.check,
            )
        )
        with channel_to(url) as channel:
            channel.queue_declare(END, durable=True)
            channel.queue_bind(END, NAMES.out, "#")

    def close(self) -> None:
        self.transport.close()
        self._publisher.close()

    def publish(self, properties: RawProperties, address: Address = ENTRANCE) -> None:
        """With the broker's confirm."""
        assert self._publisher.publish([Copy(address, properties, b"body")], PATIENCE)[0].kind is OutcomeKind.DELIVERED

    def take(self, queue: str) -> IncomingMessage:
        """The next message of a queue, acknowledged."""
        deadline = time.monotonic() + PATIENCE
        with channel_to(self.url, raw=True) as channel:
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is not None:
                    key = method.routing_key
                    return IncomingMessage(queue, method.exchange, key, properties, body, method.redelivered, 0)
                assert time.monotonic() < deadline, f"nothing came to {queue}"
                time.sleep(0.05)

    def read(self, it: IncomingMessage) -> DelayedMessage:
        """As it is stored."""
        message = self._reader.read(it, datetime.now(UTC))
        assert isinstance(message, DelayedMessage)
        return message

    def forward(self) -> tuple[DelayedMessage, IncomingMessage]:
        """The next message of the ingress queue as it is stored, and as it arrives behind it."""
        message = self.read(self.take(NAMES.queue))
        assert self.transport.send([message], None, PATIENCE)[0].kind is OutcomeKind.DELIVERED
        return message, self.take(END)


def entries(it: IncomingMessage) -> Mapping[str, bytes]:
    """The headers, each value as on the wire."""
    return {entry.name.decode(): entry.value for entry in it.properties.headers}


def version_of(url: str) -> tuple[int, ...]:
    """RabbitMQ's, of two numbers."""
    with channel_to(url) as channel:
        version = str(channel.connection._impl.server_properties["version"])
    return tuple(int(part) for part in version.split(".")[:2])
