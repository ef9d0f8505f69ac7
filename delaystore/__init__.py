"""delaystore: a durable, listable, cancellable delayed-message store for Python and RabbitMQ."""

from delaystore.delivery import DelayedDelivery
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore

__all__ = [
    "DelayedDelivery",
    "DelayedDeliverySettings",
    "DelayedMessage",
    "DelayedMessageStore",
    "TransactionMode",
]
