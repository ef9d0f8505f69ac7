"""Delays by RabbitMQ's delayed-message plugin (https://github.com/rabbitmq/rabbitmq-delayed-message-exchange)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from typing_extensions import override

from delaystore.address import Address
from delaystore.errors import TransportError, TransportSetupError, UnsupportedMessageError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.existence import queue_exists
from delaystore.transports.rabbitmq.native._abc import Handover, NativeDelay
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Exchange, Layout, Queue
from delaystore.transports.rabbitmq.topology.cascade import MILLISECOND
from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, fanout_queue

DELAY_HEADER: Final = "x-delay"
"""Milliseconds."""
MAXIMUM: Final = 2**32 - 1
"""Milliseconds; the plugin delivers at once what has a longer delay."""
EXCHANGE_TYPE: Final = "x-delayed-message"


class DelayedMessagePluginDelay(NativeDelay):
    """Any delay up to 49 days, in milliseconds, where the broker has the plugin.

    It keeps messages on one node, without a copy, and is not made for hundreds of thousands. It does not support
    `mandatory`: every delayed message would come back as unroutable, so they are published without it.

    `exchange`: its name. What is due goes from it to the exchange `EXCHANGE.delivery`, to which each destination's
    queue is bound by its own name. What has no queue by then goes to the queue `EXCHANGE.undeliverable`, as the plugin
    would drop it. An alternate exchange of its own would get a copy of each message at once: while a message is
    delayed, it counts as unroutable.
    """

    def __init__(self, exchange: str = "delaystore.delayed") -> None:
        self._exchange = exchange
        self._delivery = f"{exchange}.delivery"
        undeliverable = f"{exchange}.undeliverable"
        end = (
            Exchange(exchange, EXCHANGE_TYPE, {"x-delayed-type": "direct"}),
            Exchange(self._delivery, "direct", {ALTERNATE_EXCHANGE: undeliverable}),
        )
        super().__init__(fanout_queue(undeliverable, {"x-queue-type": "quorum"}) + Layout(exchanges=end))

    @property
    @override
    def maximum(self) -> timedelta:
        return MAXIMUM * MILLISECOND

    @override
    def address(self, handover: Handover) -> Publication:
        milliseconds = -(-handover.delay // MILLISECOND)
        if milliseconds > MAXIMUM:
            raise UnsupportedMessageError(f"the delayed-message plugin delays by at most {self.maximum}")
        message = replace(handover.message, headers={**handover.message.headers, DELAY_HEADER: milliseconds})
        return Publication(message, Address(self._exchange, handover.queue), mandatory=False)

    @override
    def prepare(self, connections: BlockingConnections, batch: Sequence[Handover]) -> Mapping[str, str]:
        try:
            return super().prepare(connections, batch)
        except TransportError as error:
            if "exchange type" not in str(error):
                raise
            raise TransportSetupError(
                f"{error}; is the plugin rabbitmq_delayed_message_exchange enabled on this broker?"
            ) from None

    @override
    def prepare_queue(self, connections: BlockingConnections, queue: str) -> bool:
        if not queue_exists(connections, queue):
            return False
        declare(connections, Layout(bindings=self._bindings(queue)))
        return True

    @override
    def required(self, queue: str) -> Sequence[Queue | Binding]:
        return self._bindings(queue)

    def _bindings(self, queue: str) -> tuple[Binding, Binding]:
        return (
            Binding(self._exchange, self._delivery, DestinationKind.EXCHANGE, queue),
            Binding(self._delivery, queue, DestinationKind.QUEUE, queue),
        )
