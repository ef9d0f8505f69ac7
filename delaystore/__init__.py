"""delaystore: a durable, listable, cancellable delayed-message store for Python and RabbitMQ."""

import logging

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

# what a library logs is for those who ask; without this Python would print warnings of those who do not
logging.getLogger("delaystore").addHandler(logging.NullHandler())
